"""Compares strategies' outputs and gradients with those of one process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
import torch.distributed as dist
from torch import Tensor

from benchmarks.testbed.strategies.cnns import Cnn
from benchmarks.testbed.strategies.data import serial
from benchmarks.testbed.strategies.groups import Mesh
from benchmarks.testbed.strategies.known import all_strategies
from benchmarks.testbed.strategies.program import Parallel


def differences(cnn: Cnn, mesh: Mesh, first_layers: Sequence[int]) -> dict[str, float]:
    """Returns the worst difference over all ranks for every strategy. Double precision, since in
    single precision another order of summation flips rectifiers. A few samples suffice."""
    few = replace(cnn, batch=max(cnn.micro_batches, mesh.world.size))
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        reference = Reference.of(few)
        return {
            strategy.name: _worst_of_all(reference.difference(strategy))
            for strategy in all_strategies(few, mesh, first_layers)
        }
    finally:
        torch.set_default_dtype(before)


def _worst_of_all(difference: float) -> float:
    found = torch.tensor(difference)
    dist.all_reduce(found, op=dist.ReduceOp.MAX)
    return float(found)


@dataclass(frozen=True)
class Reference:
    outputs: Tensor
    gradients: dict[str, Tensor]

    @classmethod
    def of(cls, cnn: Cnn) -> Reference:
        whole = serial(cnn)
        outputs = whole.compute()
        return cls(outputs, {part.name: found for part, found in whole.gradients()})

    def difference(self, program: Parallel) -> float:
        """Largest difference, relative to the largest value of its tensor."""
        program_outputs = program.compute()
        worst = 0.0
        if program_outputs is not None:
            worst = _difference(program_outputs, self.outputs[program.samples()])
        for part, found in program.gradients():
            whole = self.gradients[part.name]
            worst = max(worst, _difference(found, part.of(whole), whole))
        return worst


def _difference(found: Tensor, wanted: Tensor, scale: Tensor | None = None) -> float:
    if found.shape != wanted.shape:
        return float("inf")
    largest = (wanted if scale is None else scale).abs().max()
    return float((found - wanted).abs().max() / largest)
