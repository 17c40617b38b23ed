"""Layers of a CNN whose weights, channels and halos can be split."""

# The base classes are unknown where torch is not installed for linting.
# mypy: disable-error-code="misc"

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

KERNEL = 3


class Weighted(nn.Module):
    """Weights [filters, channels, ...], followed by a bias and, except in the last layer, a
    rectifier."""

    def __init__(self, weight: Tensor, bias: Tensor, *, is_last: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight)
        self.bias = nn.Parameter(bias)
        self.is_last = is_last

    def forward(self, inputs: Tensor) -> Tensor:
        return self.rectified(self.product(inputs, self.weight, self.bias))

    def product(self, inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        raise NotImplementedError

    def rectified(self, outputs: Tensor) -> Tensor:
        return outputs if self.is_last else functional.relu(outputs)

    def biased(self, outputs: Tensor, bias: Tensor) -> Tensor:
        return outputs + bias.view(-1, *(1,) * (outputs.dim() - 2))


class Convolution(Weighted):
    def __init__(
        self, weight: Tensor, bias: Tensor, *, stride: int, padding: tuple[int, int] = (1, 1)
    ) -> None:
        super().__init__(weight, bias)
        self.stride, self.padding = stride, padding

    @classmethod
    def make(cls, channels: int, filters: int, stride: int = 1) -> Convolution:
        made = nn.Conv2d(channels, filters, KERNEL)
        return cls(made.weight.detach(), made.bias.detach(), stride=stride)

    def product(self, inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return functional.conv2d(inputs, weight, bias, self.stride, self.padding)


class Dense(Weighted):
    @classmethod
    def make(cls, inputs: int, outputs: int, *, is_last: bool = False) -> Dense:
        made = nn.Linear(inputs, outputs)
        return cls(made.weight.detach(), made.bias.detach(), is_last=is_last)

    def product(self, inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return functional.linear(inputs, weight, bias)


class Pool(nn.Module):
    """Averages images to one number per channel."""

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs.mean((2, 3))
