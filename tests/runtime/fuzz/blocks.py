"""Blocks that networks are made of: each maps (batch, length, width) to the same shape."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils import parametrizations
from torch.utils import checkpoint

NUM_TOKENS = 11


class Linear(nn.Module):
    def __init__(self, width: int, *, activation: str = "tanh", bias: bool = True) -> None:
        super().__init__()
        self.layer = nn.Linear(width, width, bias=bias)
        self.activation = activation

    def forward(self, hidden, _tokens):
        return getattr(torch, self.activation)(self.layer(hidden))


class Mlp(nn.Module):
    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, inner), nn.Linear(inner, width)

    def forward(self, hidden, _tokens):
        return hidden + self.down(functional.gelu(self.up(hidden)))


class Checkpointed(Mlp):
    def forward(self, hidden, tokens):
        return checkpoint.checkpoint(super().forward, hidden, tokens, use_reentrant=False)


class Conv(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = nn.Conv1d(width, width, 3, padding=1)

    def forward(self, hidden, _tokens):
        return self.conv(hidden.transpose(1, 2)).relu().transpose(1, 2) + hidden


class Conv2d(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.back = nn.Conv2d(1, 3, 3, padding=1), nn.Conv2d(3, 1, 3, padding=1)

    def forward(self, hidden, _tokens):
        return hidden + self.back(self.conv(hidden[:, None]).relu())[:, 0]


class Normed(nn.Module):
    """No bias before the normalisation: its gradient would be rounding errors only."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layer, self.norm = nn.Linear(width, width, bias=False), nn.BatchNorm1d(width)

    def forward(self, hidden, _tokens):
        return self.norm(self.layer(hidden).flatten(0, 1)).view(hidden.shape)


class LayerNormed(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)

    def forward(self, hidden, _tokens):
        return self.norm(hidden)


class Attention(nn.Module):
    """Keys have no bias: its gradient would be rounding errors only."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.query, self.key = nn.Linear(width, width), nn.Linear(width, width, bias=False)
        self.value, self.out = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, hidden, _tokens):
        mixed = functional.scaled_dot_product_attention(
            self.query(hidden), self.key(hidden), self.value(hidden)
        )
        return hidden + self.out(mixed)


class Encoder(nn.Module):
    """Torch's own layer, which uses parameters of its children."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(width, 2, 2 * width, dropout=0.0, batch_first=True)

    def forward(self, hidden, _tokens):
        return self.layer(hidden)


class Recurrent(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.layer = nn.GRU(width, width, batch_first=True)

    def forward(self, hidden, _tokens):
        return self.layer(hidden)[0]


class WeightNormed(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.layer = parametrizations.weight_norm(nn.Linear(width, width))

    def forward(self, hidden, _tokens):
        return self.layer(hidden).tanh()


class Twice(Linear):
    def forward(self, hidden, tokens):
        return super().forward(super().forward(hidden, tokens), tokens)


class Scale(nn.Module):
    """A vector, a scalar and a matrix that does not lie in rows."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.vector = nn.Parameter(torch.ones(width))
        self.scalar = nn.Parameter(torch.tensor(1.0))
        self.matrix = nn.Parameter((torch.eye(width) + 0.1 * torch.randn(width, width)).t())

    def forward(self, hidden, _tokens):
        return (hidden * self.vector) @ self.matrix * self.scalar


class Embedded(nn.Module):
    def __init__(self, width: int, max_norm: float | None = None) -> None:
        super().__init__()
        self.table = nn.Embedding(NUM_TOKENS, width, max_norm=max_norm)

    def forward(self, hidden, tokens):
        return hidden + self.table(tokens)


class Dropped(nn.Module):
    def forward(self, hidden, _tokens):
        return functional.dropout(hidden, 0.2, self.training)


class Buffered(nn.Module):
    """A running mean that differs between ranks until it is broadcast, and a counter."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))

    def forward(self, hidden, _tokens):
        shifted = hidden - self.mean
        if self.training:
            with torch.no_grad():
                self.count += 1
                self.mean.lerp_(hidden.detach().mean((0, 1)).to(self.mean.dtype), 0.1)
        return shifted


class Idle(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.never = nn.Linear(3, 2)

    def forward(self, hidden, _tokens):
        return hidden


class Frozen(Linear):
    def __init__(self, width: int) -> None:
        super().__init__(width)
        self.layer.requires_grad_(False)


class Tied(nn.Module):
    """Has the weight of another block as its own; the network gives it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layer = nn.Linear(width, width)

    def forward(self, hidden, _tokens):
        return self.layer(hidden).tanh()


class Outside(nn.Module):
    """Uses a parameter that belongs to another module, which it does not register."""

    def __init__(self) -> None:
        super().__init__()
        self.owner: list[nn.Module] = []

    def forward(self, hidden, _tokens):
        return functional.linear(hidden, self.owner[0].weight.t()).tanh()


def _huge(width: int) -> nn.Module:
    """Enough bytes for halves that go in several messages."""
    return Mlp(width, (1 << 20) // (4 * width) // 2)


BLOCKS = {
    "linear": Linear,
    "relu": lambda width: Linear(width, activation="relu"),
    "mlp": lambda width: Mlp(width, 2 * width),
    "wide": lambda width: Mlp(width, 200),
    "huge": _huge,
    "checkpointed": lambda width: Checkpointed(width, width),
    "conv": Conv,
    "conv2d": lambda _width: Conv2d(),
    "batchnorm": Normed,
    "layernorm": LayerNormed,
    "attention": Attention,
    "encoder": Encoder,
    "recurrent": Recurrent,
    "weight_norm": WeightNormed,
    "twice": Twice,
    "scale": Scale,
    "embedding": Embedded,
    "max_norm": lambda width: Embedded(width, 1.0),
    "dropout": lambda _width: Dropped(),
    "buffer": Buffered,
    "idle": lambda _width: Idle(),
    "frozen": Frozen,
    "optional": Linear,
    "tied": Tied,
    "outside": lambda _width: Outside(),
}
