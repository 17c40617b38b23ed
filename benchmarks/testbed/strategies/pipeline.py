"""Pipeline parallelism: layers in stages, micro-batches one after the other (GPipe: all forward,
then all backward).

Receives are posted in advance, sends are waited for: a stage computes while it receives, not while
it sends.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import functional

from benchmarks.testbed.strategies.cnns import Cnn
from benchmarks.testbed.strategies.program import Gradients, Part, whole_parts


class Pipeline:
    """A pipeline. ``first_layers``: the first layer of each stage."""

    name = "pipeline"

    def __init__(self, cnn: Cnn, first_layers: Sequence[int]) -> None:
        self._rank: int = dist.get_rank()
        self._size: int = dist.get_world_size()
        model = cnn.build()
        begin, end = [*first_layers, len(model)][self._rank : self._rank + 2]
        self._layers = list(model)[begin:end]
        self._batch, self._num = cnn.batch, cnn.micro_batches
        inputs, targets = cnn.samples()
        self._inputs, self._targets = inputs.chunk(self._num), targets.chunk(self._num)
        with torch.no_grad():
            passed = model[:begin](self._inputs[0])
            self._taken, self._given = passed.shape, model[begin:end](passed).shape
        self._parts = [
            (part, parameter)
            for part, parameter in whole_parts(model)
            if begin <= int(part.name.partition(".")[0]) < end
        ]
        own = [parameter for _, parameter in self._parts]
        self._buffer = Gradients(own)
        self._optimizer = torch.optim.SGD(own, lr=1e-3, momentum=0.9)

    @property
    def _is_first(self) -> bool:
        return self._rank == 0

    @property
    def _is_last(self) -> bool:
        return self._rank == self._size - 1

    def step(self) -> None:
        self._buffer.flat.zero_()
        self.compute()
        self._optimizer.step()

    def compute(self) -> Tensor | None:
        taken = list(self._inputs) if self._is_first else self._forthcoming(-1, self._taken)
        given, outputs = [], []
        for micro in range(self._num):
            entered = self._arrived(taken[micro])
            left = entered.requires_grad_(not self._is_first)
            for layer in self._layers:
                left = layer(left)
            if self._is_last:
                outputs.append(left.detach())
                left = self._loss(left, micro)
            else:
                dist.send(left.detach(), self._rank + 1)
            given.append((entered, left))
        gradients = [] if self._is_last else self._forthcoming(1, self._given)
        for micro, (entered, left) in enumerate(given):
            left.backward(None if self._is_last else self._arrived(gradients[micro]))
            if not self._is_first:
                dist.send(entered.grad, self._rank - 1)
        return torch.cat(outputs) if outputs else None

    def samples(self) -> slice:
        return slice(0, self._batch)

    def gradients(self) -> list[tuple[Part, Tensor]]:
        return [(part, parameter.grad) for part, parameter in self._parts]

    def _loss(self, outputs: Tensor, micro: int) -> Tensor:
        total = functional.cross_entropy(outputs, self._targets[micro], reduction="sum")
        return total / self._batch

    def _forthcoming(self, step: int, shape: Any) -> list[tuple[Tensor, Any]]:
        """Posts receives from a neighbour, one message per micro-batch."""
        buffers = [torch.empty(shape) for _ in range(self._num)]
        return [(buffer, dist.irecv(buffer, self._rank + step)) for buffer in buffers]

    @staticmethod
    def _arrived(what: Tensor | tuple[Tensor, Any]) -> Tensor:
        if isinstance(what, Tensor):
            return what
        buffer, work = what
        work.wait()
        return buffer
