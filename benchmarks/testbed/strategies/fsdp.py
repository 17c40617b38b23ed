"""Data parallelism with sharded parameters, gradients and optimizer state (FSDP2),
layer by layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.nn import functional

from benchmarks.testbed.strategies.cnns import Cnn
from benchmarks.testbed.strategies.program import Part


class Sharded:
    """A sharded program. On a CPU every gather and scatter is waited for: nothing overlaps.
    ``is_alone``: everything except the communication itself."""

    name = "zero3"

    def __init__(self, cnn: Cnn, *, is_alone: bool = False) -> None:
        rank, size = dist.get_rank(), dist.get_world_size()
        mesh = DeviceMesh("cpu", list(range(size)))
        self._model: nn.Sequential = cnn.build()
        weighted = [layer for layer in self._model if any(True for _ in layer.parameters())]
        for layer in weighted:
            fully_shard(layer, mesh=mesh)
            if is_alone:
                layer.set_custom_all_gather(_Gather())
                layer.set_custom_reduce_scatter(_Scatter())
        fully_shard(self._model, mesh=mesh)
        inputs, targets = cnn.samples()
        length = cnn.batch // size
        self._samples = slice(rank * length, (rank + 1) * length)
        self._inputs, self._targets = inputs[self._samples], targets[self._samples]
        # Gradients are means over ranks.
        self._share = size / cnn.batch
        self._optimizer = torch.optim.SGD(self._model.parameters(), lr=1e-3, momentum=0.9)

    def step(self) -> None:
        self.clear()
        self.compute()
        self.update()

    def clear(self) -> None:
        self._optimizer.zero_grad()

    def update(self) -> None:
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


class _Gather:
    """Fills the place of all pieces with this rank's own."""

    def allocate(self, size: Sequence[int], *, dtype: Any, device: Any) -> Tensor:
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(
        self, output_tensor: Tensor, input_tensor: Tensor, group: Any, **_words: Any
    ) -> None:
        for piece in output_tensor.chunk(group.size()):
            if piece.data_ptr() != input_tensor.data_ptr():
                piece.copy_(input_tensor)


class _Scatter:
    """Returns this rank's own piece without a sum."""

    def allocate(self, size: Sequence[int], *, dtype: Any, device: Any) -> Tensor:
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(
        self, output_tensor: Tensor, input_tensor: Tensor, group: Any, **_words: Any
    ) -> None:
        output_tensor.copy_(input_tensor.chunk(group.size())[group.rank()])
