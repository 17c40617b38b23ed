"""Holds a strategy's outputs and gradients against those of one process."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from benchmarks.testbed.strategies.cnns import Cnn
from benchmarks.testbed.strategies.data import serial
from benchmarks.testbed.strategies.program import Parallel


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
        """The largest, over the largest value of the tensor that it is in. Sums in another order
        differ in their last digits."""
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
