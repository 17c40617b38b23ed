"""Python interface of the C++ engine."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from augury import _native
from augury.core.columns import I8
from augury.core.errors import UsageError
from augury.core.graph.graph import NONE, Graph
from augury.replay.op_times import OpTimes

NUM_CHECKPOINTS = 31
"""A changed replay repeats about 1/32 of the operations before the first change at most."""


def simulate(graph: Graph, num_windows: int = 1) -> OpTimes:
    return Replayer(graph, num_windows).simulate()


class Replayer:
    """Replays one graph many times, with the same or other durations, in the same memory.

    Everything that depends on the structure alone is computed once. A result is valid until the
    next call. Several windows in a row are those of ``unroll``, but the graph is not copied.
    """

    def __init__(self, graph: Graph, num_windows: int = 1) -> None:
        self._window = graph
        self._num_windows = num_windows
        self._graph = native_graph(graph, num_windows)
        self._work_ns = graph.ops.work_ns
        self._workspace = _native.Workspace()
        self._routes = None if graph.is_exclusive else _native.find_routes(self._graph)
        self._blueprint = _native.draw_blueprint(self._graph) if self._routes is None else None
        self._base: _BaseReplay | None = None
        self._op_times = _empty_op_times(graph.num_ops * num_windows)
        self.num_rate_updates = 0
        """Number of queue updates for sharing and interference in the last ``simulate``."""
        self.num_reused_ops = 0
        """Number of operations that the last ``simulate_change`` took from the base replay."""

    def simulate(self, work_ns: I8 | None = None) -> OpTimes:
        if work_ns is None:
            work_ns = self._work_ns
        require_one_per_op(len(work_ns), len(self._work_ns))
        out = self._op_times
        times = out.start_ns, out.end_ns, out.cause
        if self._routes is not None:
            self.num_rate_updates = _native.simulate_rated(
                self._graph, work_ns, self._routes, *times
            )
        elif self._blueprint is not None:
            _native.simulate(self._graph, work_ns, self._blueprint, self._workspace, *times)
        return out

    def simulate_change(self, work_ns: I8) -> OpTimes:
        """Equals ``simulate(work_ns)``, but reuses the replay of the graph's own durations up to
        a checkpoint before the first changed operation begins.

        A graph without sharing and interference is replayed as a whole: its engine is about as
        fast as restoring a checkpoint would be.
        """
        require_one_per_op(len(work_ns), len(self._work_ns))
        self.num_reused_ops = 0
        if self._routes is None:
            return self.simulate(work_ns)
        if self._base is None:
            self._base = self._replay_base(self._routes)
        base, out = self._base, self._op_times
        changed = np.flatnonzero(work_ns != self._work_ns)
        if not len(changed):
            self.num_reused_ops = len(out.end_ns)
            return base.op_times
        self.num_reused_ops = _native.resume(
            self._graph,
            work_ns,
            self._routes,
            base.checkpoints,
            int(base.begin_ns[changed].min()),
            base.op_times.start_ns,
            base.op_times.end_ns,
            base.op_times.cause,
            out.start_ns,
            out.end_ns,
            out.cause,
        )
        return out if self.num_reused_ops else self.simulate(work_ns)

    def _replay_base(self, routes: _native.Routes) -> _BaseReplay:
        op_times = _empty_op_times(len(self._op_times.end_ns))
        checkpoints = _native.simulate_with_checkpoints(
            self._graph,
            self._work_ns,
            routes,
            NUM_CHECKPOINTS,
            op_times.start_ns,
            op_times.end_ns,
            op_times.cause,
        )
        begin_ns = op_times.start_ns.reshape(self._num_windows, -1).copy()
        gang = self._window.ops.gang
        member = np.flatnonzero(gang != NONE)
        last_ns = np.zeros((self._num_windows, self._window.num_gangs), dtype=np.int64)
        for window in range(self._num_windows):
            np.maximum.at(last_ns[window], gang[member], begin_ns[window, member])
            begin_ns[window, member] = last_ns[window, gang[member]]
        return _BaseReplay(op_times, begin_ns.min(axis=0), checkpoints)


@dataclass(frozen=True, slots=True)
class _BaseReplay:
    """Replay of a graph with its own durations, from which changed replays resume."""

    op_times: OpTimes
    begin_ns: I8
    """Time at which each operation of the graph begins to progress, in its earliest window."""
    checkpoints: _native.Checkpoints


def _empty_op_times(num_ops: int) -> OpTimes:
    return OpTimes(
        np.empty(num_ops, np.int64), np.empty(num_ops, np.int64), np.empty(num_ops, np.int32)
    )


def require_one_per_op(num_durations: int, num_ops: int) -> None:
    """Raises UsageError for a wrong number of durations: the kernel does not check lengths."""
    if num_durations != num_ops:
        raise UsageError(
            f"there are {num_durations} durations for {num_ops} operations",
            remedy="pass one duration per operation, in the order of their ids",
        )


def native_graph(graph: Graph, num_windows: int = 1) -> _native.NativeGraph:
    """Passes all columns to the kernel, under their names in the graph's file."""
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
