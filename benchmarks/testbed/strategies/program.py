"""The common interface of strategies: a step, and the rank's part of the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.testbed.strategies.groups import Group


@dataclass(frozen=True, slots=True)
class Part:
    """A slice of one of the whole model's parameters along one dimension."""

    name: str
    dim: int = 0
    start: int = 0
    length: int | None = None

    def of(self, whole: Tensor) -> Tensor:
        if self.length is None:
            return whole
        return whole.narrow(self.dim, self.start, self.length)


class Parallel(Protocol):
    """A strategy that trains."""

    name: str

    def step(self) -> None:
        """Runs a whole step, including the update."""

    def compute(self) -> Tensor | None:
        """Runs forward, backward and the gradient exchange; returns outputs where this rank has
        them."""

    def samples(self) -> slice:
        """The samples to which the outputs belong."""

    def gradients(self) -> list[tuple[Part, Tensor]]: ...


class Gradients:
    """Gradients of all parameters in one buffer, so that they can be summed without copies."""

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        self.flat = torch.zeros(sum(own.numel() for own in parameters))
        start = 0
        for own in parameters:
            own.grad = self.flat[start : start + own.numel()].view_as(own)
            start += own.numel()


@dataclass
class Program:
    """A sequence of layers, a loss, and sums of gradients over groups."""

    name: str
    layers: list[nn.Module]
    inputs: Tensor
    targets: Tensor
    share: float
    """This rank's share of the summed sample losses, such that gradients are means over the whole
    batch."""
    parts: list[tuple[Part, nn.Parameter]]
    summed_over: tuple[Group, ...] = ()
    """Groups over which all gradients are summed at once, in this order."""
    first_sample: int = 0
    buffer: Gradients = field(init=False)
    optimizer: torch.optim.SGD = field(init=False)

    def __post_init__(self) -> None:
        own = [parameter for _, parameter in self.parts]
        self.buffer = Gradients(own)
        self.optimizer = torch.optim.SGD(own, lr=1e-3, momentum=0.9)

    def step(self) -> None:
        self.clear()
        self.compute()
        self.update()

    def update(self) -> None:
        self.optimizer.step()

    def clear(self) -> None:
        self.buffer.flat.zero_()

    def compute(self) -> Tensor:
        outputs = self.inputs
        for layer in self.layers:
            outputs = layer(outputs)
        self.loss(outputs).backward()
        for group in self.summed_over:
            group.all_reduce(self.buffer.flat)
        return outputs.detach()

    def loss(self, outputs: Tensor) -> Tensor:
        return functional.cross_entropy(outputs, self.targets, reduction="sum") * self.share

    def samples(self) -> slice:
        return slice(self.first_sample, self.first_sample + len(self.inputs))

    def gradients(self) -> list[tuple[Part, Tensor]]:
        return [(part, parameter.grad) for part, parameter in self.parts]


def whole_parts(model: nn.Sequential) -> list[tuple[Part, nn.Parameter]]:
    return [(Part(name), parameter) for name, parameter in model.named_parameters()]


def own_samples(tensor: Tensor, group: Group) -> Tensor:
    length = len(tensor) // group.size
    return tensor[group.rank * length : (group.rank + 1) * length].contiguous()
