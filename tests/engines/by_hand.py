"""Engines and a short notation of graphs for hand-computed cases."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from augury.core.graph.builder import GraphBuilder
from augury.core.graph.graph import Graph
from augury.replay import kernel, reference
from augury.replay.op_times import OpTimes

from . import simpy_model

Times = list[tuple[int, int]]
Engine = Callable[[Graph], Times]

NEVER = (-1, -1)


def _times_of(simulate: Callable[[Graph], OpTimes]) -> Engine:
    def times(graph: Graph) -> Times:
        op_times = simulate(graph)
        return list(zip(op_times.start_ns.tolist(), op_times.end_ns.tolist(), strict=True))

    return times


def simpy_times(graph: Graph) -> Times:
    start, end = simpy_model.simulate(graph)
    return list(zip(start.tolist(), end.tolist(), strict=True))


_SCHEDULERS = [
    pytest.param(reference.simulate, id="reference"),
    pytest.param(kernel.simulate, id="kernel"),
]
_RATED = [
    pytest.param(_times_of(reference.simulate), id="reference"),
    pytest.param(_times_of(kernel.simulate), id="kernel"),
]
_ALL = [*_RATED, pytest.param(simpy_times, id="simpy")]
every_engine = pytest.mark.parametrize("times", _ALL)
every_rated_engine = pytest.mark.parametrize("times", _RATED)
every_scheduler = pytest.mark.parametrize("simulate", _SCHEDULERS)


class Bench:
    """Builds small graphs, by default with one rank; operations are numbered as they are added."""

    def __init__(self, num_ranks: int = 1) -> None:
        self.builder = GraphBuilder()
        for _ in range(num_ranks):
            self.builder.rank()
        self.stream = self.builder.resource
        self.link = self.builder.shared_resource
        self.gang = self.builder.gang
        self.interfere = self.builder.interfere

    def op(
        self,
        work_ns: int,
        on: int = -1,
        *after: int,
        rank: int = 0,
        priority: int = 0,
        gang: int = -1,
    ) -> int:
        return self.builder.op(
            "op",
            rank=rank,
            work_ns=work_ns,
            resource=on,
            after=after,
            priority=priority,
            gang=gang,
        )

    def graph(self) -> Graph:
        return self.builder.build()
