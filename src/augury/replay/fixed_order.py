"""FixedOrder: estimates steps under many sets of durations by sweeps in one fixed service order.

Small changes of durations rarely change the order in which resources serve their operations, and a
sweep in a fixed order costs a fraction of a replay. Its results are estimates.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from augury.core.columns import I4, I8
from augury.core.graph.cycles import data_order
from augury.core.graph.graph import Graph
from augury.replay.engine import Engine, find_engine
from augury.replay.op_times import OpTimes
from augury.replay.run import refusing_deadlocks
from augury.replay.steady_state import find_steady_state
from augury.replay.utilization import progress_start_ns


class FixedOrder:
    """The order in which an exact replay of ``graph`` by ``simulate`` served its operations.

    Raises ValueError where times do not determine the order: several operations without work may
    run at one time stamp.
    """

    def __init__(self, graph: Graph, simulate: Engine | None = None) -> None:
        from augury._native import fix_order  # noqa: PLC0415
        from augury.replay.kernel import native_graph  # noqa: PLC0415

        if simulate is None:
            simulate = refusing_deadlocks(find_engine("native"), num_ops=graph.num_ops)
        if len(graph.carries):
            steady = find_steady_state(graph, simulate)
            whole, op_times = steady.unrolled, steady.op_times
            self._num_windows, self._pattern = steady.num_windows, steady.pattern
        else:
            whole, op_times = graph, simulate(graph)
            self._num_windows, self._pattern = 1, 0
        self._num_steps = max(graph.num_steps, 1)
        # The last window is the steady one.
        self._slowdown = _slowdown(whole, op_times)[-graph.num_ops :]
        self._order = fix_order(
            native_graph(whole), _service_order(whole, op_times), op_times.end_ns
        )

    def step_ns(self, work_ns: I8) -> I8:
        """Returns the estimated step for each row of durations; a row has one per operation."""
        from augury.replay.kernel import require_one_per_op  # noqa: PLC0415

        rows = np.atleast_2d(np.asarray(work_ns, dtype=np.int64))
        require_one_per_op(rows.shape[-1], len(self._slowdown))
        if (self._slowdown != 1.0).any():
            rows = np.rint(rows * self._slowdown).astype(np.int64)
        latest_ns = np.empty((len(rows), self._num_windows), dtype=np.int64)
        self._order.sweep(np.ascontiguousarray(rows), latest_ns)
        period_ns = latest_ns[:, -1].astype(np.float64)
        if self._pattern:
            period_ns = (latest_ns[:, -1] - latest_ns[:, -1 - self._pattern]) / self._pattern
        steps: I8 = np.rint(period_ns / self._num_steps).astype(np.int64)
        return steps


def _slowdown(graph: Graph, op_times: OpTimes) -> NDArray[np.float64]:
    """Returns the time that each operation took over its work. Sharing and interference are
    assumed to slow it by this factor whatever its duration."""
    if graph.is_exclusive:
        return np.ones(graph.num_ops)
    took_ns = op_times.end_ns - progress_start_ns(graph, op_times)
    return np.where(graph.ops.work_ns > 0, took_ns / np.maximum(graph.ops.work_ns, 1), 1.0)


def _service_order(graph: Graph, op_times: OpTimes) -> I4:
    """Orders operations by the time at which they began to progress, then by their dependencies."""
    rank = np.empty(graph.num_ops, dtype=np.int64)
    rank[data_order(graph.edges)] = np.arange(graph.num_ops)
    began_ns = progress_start_ns(graph, op_times)
    return np.lexsort((rank, op_times.end_ns, began_ns)).astype(np.int32)
