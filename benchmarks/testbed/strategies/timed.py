"""Layer times in one process: forward, backward and update of a program, layer by layer."""

from __future__ import annotations

from dataclasses import dataclass, field
from time import perf_counter

from torch import Tensor

from benchmarks.testbed.strategies.fsdp import Sharded
from benchmarks.testbed.strategies.program import Program


@dataclass
class LayerTimes:
    """One list per repetition; a program whose layers cannot be separated has one entry for all."""

    forward_s: list[list[float]] = field(default_factory=list)
    backward_s: list[list[float]] = field(default_factory=list)
    update_s: list[float] = field(default_factory=list)

    def add(self, forward_s: list[float], backward_s: list[float], update_s: float) -> None:
        self.forward_s.append(forward_s)
        self.backward_s.append(backward_s)
        self.update_s.append(update_s)


def time_layers(program: Program, times: LayerTimes) -> None:
    """Times one step with cuts between layers; otherwise it equals a step of the program."""
    begin = perf_counter()
    program.clear()
    update_s = perf_counter() - begin
    forward_s, backward_s = [], []
    entered: list[Tensor] = []
    left: list[Tensor] = []
    outputs = program.inputs
    for index, layer in enumerate(program.layers):
        begin = perf_counter()
        entered.append(outputs.detach().requires_grad_(index > 0))
        outputs = layer(entered[-1])
        if index == len(program.layers) - 1:
            outputs = program.loss(outputs)
        left.append(outputs)
        forward_s.append(perf_counter() - begin)
    gradient: Tensor | None = None
    while left:
        begin = perf_counter()
        left.pop().backward(gradient)
        gradient = entered.pop().grad
        backward_s.append(perf_counter() - begin)
    begin = perf_counter()
    program.update()
    times.add(forward_s, backward_s[::-1], update_s + perf_counter() - begin)


def time_sharded(program: Sharded, times: LayerTimes) -> None:
    begin = perf_counter()
    program.clear()
    cleared = perf_counter()
    program.compute()
    computed = perf_counter()
    program.update()
    update_s = cleared - begin + perf_counter() - computed
    times.add([computed - cleared], [0.0], update_s)
