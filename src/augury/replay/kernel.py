"""The C++ engine: the reference's semantics at the hardware's speed."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from augury import _native
from augury.core.graph import Graph
from augury.core.table import I8
from augury.replay.schedule import Schedule


def simulate(graph: Graph) -> Schedule:
    return Replayer(graph).simulate()


class Replayer:
    """Replays one graph again and again, with the same or other durations, in the same memory.

    What depends on the structure alone is worked out once; each result lasts until the next.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._columns = columns_of(graph)
        self._workspace = _native.Workspace()
        self._blueprint = (
            _native.draw_blueprint(self._columns, graph.num_gangs) if graph.is_exclusive else None
        )
        self._schedule = Schedule(
            np.empty(graph.num_ops, np.int64),
            np.empty(graph.num_ops, np.int64),
            np.empty(graph.num_ops, np.int32),
        )

    def simulate(self, work_ns: I8 | None = None) -> Schedule:
        columns = self._columns
        if work_ns is not None:
            columns = columns | {"ops.work_ns": np.ascontiguousarray(work_ns, np.int64)}
            assert len(work_ns) == self._graph.num_ops
        out = self._schedule
        _native.simulate(
            columns=columns,
            num_gangs=self._graph.num_gangs,
            blueprint=self._blueprint,
            workspace=self._workspace,
            start_ns=out.start_ns,
            end_ns=out.end_ns,
            cause=out.cause,
        )
        return out


def columns_of(graph: Graph) -> dict[str, NDArray[Any]]:
    """Every column under its name in the graph's file."""
    return {
        f"{name}.{column}": values
        for name in (
            "ops",
            "edges",
            "carries",
            "resources",
            "interference",
            "buffers",
            "ranks",
        )
        for column, values in getattr(graph, name).columns()
    }
