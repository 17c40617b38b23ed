"""Models of different shapes: the position of the parameters decides which communication can
overlap.

Each is a module, a batch and a loss, with about 50 to 100 ms of compute per step on one core and 8
to 13 MB of gradients; ``deep`` and ``narrow`` have many small gradients instead.
"""

# The base classes are unknown where torch is not installed for linting.
# mypy: disable-error-code="misc"

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    build: Callable[[], nn.Module]
    sample: Callable[[int], tuple[Tensor, Tensor]]
    """Returns that many inputs and targets."""
    batch: int
    blocks: Callable[[nn.Module], list[nn.Module]]
    """The parts that a sharded model gathers one at a time."""


class Residual(nn.Module):
    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs + self.layers(inputs)


class BigFirst(nn.Module):
    """One wide projection, then narrow layers: the largest gradient comes last."""

    def __init__(self, inputs: int = 3072, tokens: int = 3, width: int = 256) -> None:
        super().__init__()
        self.tokens = tokens
        self.project = nn.Linear(inputs, tokens * width)
        self.body = nn.Sequential(
            *(Residual(nn.LayerNorm(width), nn.Linear(width, width), nn.GELU()) for _ in range(8))
        )
        self.head = nn.Linear(width, 10)

    def forward(self, inputs: Tensor) -> Tensor:
        tokens = self.project(inputs).unflatten(1, (self.tokens, -1))
        out: Tensor = self.head(self.body(tokens).mean(1))
        return out


def big_last() -> nn.Module:
    """Convolutions have most of the work, the classifier most of the parameters."""
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 48, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(4),
        nn.Flatten(),
        nn.Linear(48 * 16, 1536),
        nn.ReLU(),
        nn.Linear(1536, 1024),
        nn.ReLU(),
        nn.Linear(1024, 10),
    )


def _conv(inputs: int, outputs: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()
    )


def convolutional() -> nn.Module:
    return nn.Sequential(
        _conv(3, 32),
        _conv(32, 64),
        nn.MaxPool2d(2),
        _conv(64, 128),
        nn.MaxPool2d(2),
        Residual(_conv(128, 128)),
        _conv(128, 256),
        nn.MaxPool2d(2),
        Residual(_conv(256, 256)),
        Residual(_conv(256, 256)),
        Residual(_conv(256, 256)),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(256, 10),
    )


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.mix = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, inputs: Tensor) -> Tensor:
        parts = self.mix(inputs).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        query, key, value = parts.unbind(0)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        out: Tensor = self.out(mixed.transpose(1, 2).flatten(2))
        return out


class Transformer(nn.Module):
    def __init__(self, vocabulary: int = 512, width: int = 256, layers: int = 3) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.layers = nn.Sequential(
            *(
                nn.Sequential(
                    Residual(nn.LayerNorm(width), Attention(width, 4)),
                    Residual(
                        nn.LayerNorm(width),
                        nn.Linear(width, 4 * width),
                        nn.GELU(),
                        nn.Linear(4 * width, width),
                    ),
                )
                for _ in range(layers)
            )
        )
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        out: Tensor = self.head(self.layers(self.embed(tokens)))
        return out.transpose(1, 2)


def deep(num_layers: int = 200, width: int = 64) -> nn.Module:
    """Many layers with few parameters each."""
    layers = (
        Residual(nn.LayerNorm(width), nn.Linear(width, width), nn.GELU()) for _ in range(num_layers)
    )
    return nn.Sequential(nn.Linear(3072, width), *layers, nn.Linear(width, 10))


def narrow(num_layers: int = 60, channels: int = 16) -> nn.Module:
    """Many convolutions with few channels."""
    layers = (Residual(_conv(channels, channels)) for _ in range(num_layers))
    return nn.Sequential(
        nn.Conv2d(3, channels, 3, stride=2, padding=1),
        *layers,
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(channels, 10),
    )


def _images(count: int) -> tuple[Tensor, Tensor]:
    return torch.randn(count, 3, 32, 32), torch.randint(10, (count,))


def _vectors(count: int) -> tuple[Tensor, Tensor]:
    return torch.randn(count, 3072), torch.randint(10, (count,))


def _texts(count: int) -> tuple[Tensor, Tensor]:
    tokens = torch.randint(512, (count, 65))
    return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


def _children(model: nn.Module) -> list[nn.Module]:
    return [child for child in model.children() if any(True for _ in child.parameters())]


def _layers(model: nn.Module) -> list[nn.Module]:
    assert isinstance(model, Transformer)
    return list(model.layers)


WORKLOADS = {
    "last": Workload(build=big_last, sample=_images, batch=12, blocks=_children),
    "first": Workload(build=BigFirst, sample=_vectors, batch=96, blocks=_children),
    "conv": Workload(build=convolutional, sample=_images, batch=6, blocks=_children),
    "deep": Workload(build=deep, sample=_vectors, batch=64, blocks=_children),
    "narrow": Workload(build=narrow, sample=_images, batch=2, blocks=_children),
    "transformer": Workload(build=Transformer, sample=_texts, batch=2, blocks=_layers),
}
