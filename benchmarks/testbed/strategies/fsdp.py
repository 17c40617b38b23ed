"""Data parallelism with parameters, gradients and state shared out (FSDP2), layer by layer."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.nn import functional

from benchmarks.testbed.strategies.cnns import Cnn
from benchmarks.testbed.strategies.program import Part


class Sharded:
    """``mesh`` has all ranks, or this one alone: with ``rank`` and ``size`` it then stands for one
    of several."""

    name = "zero3"

    def __init__(self, cnn: Cnn, mesh: DeviceMesh, *, rank: int, size: int) -> None:
        self._model: nn.Sequential = cnn.build()
        weighted = [layer for layer in self._model if any(True for _ in layer.parameters())]
        for layer in weighted:
            fully_shard(layer, mesh=mesh)
        fully_shard(self._model, mesh=mesh)
        inputs, targets = cnn.samples()
        length = cnn.batch // size
        self._samples = slice(rank * length, (rank + 1) * length)
        self._inputs, self._targets = inputs[self._samples], targets[self._samples]
        # Gradients come out as means over ranks.
        self._share = size / cnn.batch
        self._optimizer = torch.optim.SGD(self._model.parameters(), lr=1e-3, momentum=0.9)

    def step(self) -> None:
        self._optimizer.zero_grad()
        self.compute()
        self._optimizer.step()

    def compute(self) -> Tensor:
        outputs = self._model(self._inputs)
        total = functional.cross_entropy(outputs, self._targets, reduction="sum")
        (total * self._share).backward()
        return outputs.detach()

    def samples(self) -> slice:
        return self._samples

    def gradients(self) -> list[tuple[Part, Tensor]]:
        return [
            (Part(name), parameter.grad.full_tensor())
            for name, parameter in self._model.named_parameters()
        ]
