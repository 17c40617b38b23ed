"""The C++ engine: the reference's semantics at the hardware's speed."""

from __future__ import annotations

import numpy as np

from augury import _native
from augury.core.columns import I8
from augury.core.errors import UsageError
from augury.core.graph.graph import Graph
from augury.replay.op_times import Schedule


def simulate(graph: Graph, num_windows: int = 1) -> Schedule:
    return Replayer(graph, num_windows).simulate()


class Replayer:
    """Replays one graph again and again, with the same or other durations, in the same memory.

    What depends on the structure alone is worked out once; each result lasts until the next.
    Several windows in a row are those that ``unroll`` makes, but the graph is not copied.
    """

    def __init__(self, graph: Graph, num_windows: int = 1) -> None:
        self._graph = native_graph(graph, num_windows)
        self._work_ns = graph.ops.work_ns
        self._workspace = _native.Workspace()
        self._routes = None if graph.is_exclusive else _native.find_routes(self._graph)
        self._blueprint = _native.draw_blueprint(self._graph) if self._routes is None else None
        self.num_rate_updates = 0
        """How many updates of queues sharing and interference took in the last replay."""
        num_ops = graph.num_ops * num_windows
        self._schedule = Schedule(
            np.empty(num_ops, np.int64), np.empty(num_ops, np.int64), np.empty(num_ops, np.int32)
        )

    def simulate(self, work_ns: I8 | None = None) -> Schedule:
        if work_ns is None:
            work_ns = self._work_ns
        require_one_per_op(len(work_ns), len(self._work_ns))
        out = self._schedule
        times = out.start_ns, out.end_ns, out.cause
        if self._routes is not None:
            self.num_rate_updates = _native.simulate_rated(
                self._graph, work_ns, self._routes, *times
            )
        elif self._blueprint is not None:
            _native.simulate(self._graph, work_ns, self._blueprint, self._workspace, *times)
        return out


def require_one_per_op(num_durations: int, num_ops: int) -> None:
    """The kernel trusts lengths."""
    if num_durations != num_ops:
        raise UsageError(
            f"there are {num_durations} durations for {num_ops} operations",
            remedy="give one duration per operation, in the order of their ids",
        )


def native_graph(graph: Graph, num_windows: int = 1) -> _native.NativeGraph:
    """Every column under its name in the graph's file."""
    columns = {
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
    return _native.NativeGraph(columns, graph.num_gangs, num_windows)
