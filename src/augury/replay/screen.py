"""Screening: many candidates' durations, judged by a sweep in the order of one exact replay; the
best of them are then replayed exactly.

Small changes of durations hardly change who is served when, and a sweep in a fixed order costs a
fraction of a replay. Its verdict is an estimate; what ``screen`` returns is exact.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from augury.core.columns import I4, I8
from augury.core.graph.cycles import data_order
from augury.core.graph.graph import Graph, Ops
from augury.replay.engine import EngineName, find_engine, is_native_built
from augury.replay.op_times import Schedule
from augury.replay.run import refusing_deadlocks
from augury.replay.steady_state import find_steady_state
from augury.replay.utilization import progress_start_ns
from augury.replay.window import replay_window


@dataclass(frozen=True, slots=True, kw_only=True)
class Screened:
    candidate: int
    estimated_step_ns: int
    step_ns: int
    """What an exact replay says."""


class FixedOrder:
    """The order in which an exact replay of ``graph`` served everything."""

    def __init__(self, graph: Graph) -> None:
        from augury._native import fix_order  # noqa: PLC0415
        from augury.replay.kernel import native_graph  # noqa: PLC0415

        simulate = refusing_deadlocks(find_engine("native"), num_ops=graph.num_ops)
        if len(graph.carries):
            steady = find_steady_state(graph, simulate)
            whole, schedule = steady.unrolled, steady.schedule
            self._num_windows, self._pattern = steady.num_windows, steady.pattern
        else:
            whole, schedule = graph, simulate(graph)
            self._num_windows, self._pattern = 1, 0
        self._num_steps = max(graph.num_steps, 1)
        # Of several windows the last one is the settled one.
        self._stretch = _stretch(whole, schedule)[-graph.num_ops :]
        self._order = fix_order(
            native_graph(whole), _service_order(whole, schedule), schedule.end_ns
        )

    def step_ns(self, work_ns: I8) -> I8:
        """For every row of durations, one per operation, the estimated step."""
        from augury.replay.kernel import require_one_per_op  # noqa: PLC0415

        rows = np.atleast_2d(np.asarray(work_ns, dtype=np.int64))
        require_one_per_op(rows.shape[-1], len(self._stretch))
        if (self._stretch != 1.0).any():
            rows = np.rint(rows * self._stretch).astype(np.int64)
        latest_ns = np.empty((len(rows), self._num_windows), dtype=np.int64)
        self._order.sweep(np.ascontiguousarray(rows), latest_ns)
        period_ns = latest_ns[:, -1].astype(np.float64)
        if self._pattern:
            period_ns = (latest_ns[:, -1] - latest_ns[:, -1 - self._pattern]) / self._pattern
        steps: I8 = np.rint(period_ns / self._num_steps).astype(np.int64)
        return steps


def screen(
    graph: Graph, work_ns: I8, *, keep: int = 8, engine: EngineName = "auto"
) -> tuple[Screened, ...]:
    """The ``keep`` most promising rows of durations, replayed exactly, best first."""
    simulate = refusing_deadlocks(find_engine(engine), num_ops=graph.num_ops)

    def exact_ns(row: int) -> int:
        return replay_window(with_work(graph, work_ns[row]), simulate).step_ns

    estimates = _estimates(graph, work_ns)
    if estimates is None:
        exact = {row: exact_ns(row) for row in range(len(work_ns))}
        promising = sorted(exact, key=lambda row: (exact[row], row))[:keep]
        estimates = np.array([exact[row] for row in range(len(work_ns))], dtype=np.int64)
    else:
        promising = np.argsort(estimates, kind="stable")[:keep].tolist()
        exact = {row: exact_ns(row) for row in promising}
    return tuple(
        Screened(candidate=row, estimated_step_ns=int(estimates[row]), step_ns=exact[row])
        for row in sorted(promising, key=lambda row: (exact[row], row))
    )


def _estimates(graph: Graph, work_ns: I8) -> I8 | None:
    """None where there is no native engine, or where things without work happen at one time stamp
    in an order that times do not show."""
    if not is_native_built():
        return None
    try:
        return FixedOrder(graph).step_ns(work_ns)
    except ValueError:
        return None


def with_work(graph: Graph, work_ns: I8) -> Graph:
    """The same graph with other durations."""
    columns = dict(graph.ops.columns()) | {"work_ns": work_ns}
    return graph.evolve(ops=Ops(**columns))


def _stretch(graph: Graph, schedule: Schedule) -> NDArray[np.float64]:
    """How much longer each operation took than its work: sharing and interference are assumed
    to slow it by the same factor whatever its duration."""
    if graph.is_exclusive:
        return np.ones(graph.num_ops)
    took_ns = schedule.end_ns - progress_start_ns(graph, schedule)
    return np.where(graph.ops.work_ns > 0, took_ns / np.maximum(graph.ops.work_ns, 1), 1.0)


def _service_order(graph: Graph, schedule: Schedule) -> I4:
    """By the time they progressed; what takes no time goes by the order of data."""
    rank = np.empty(graph.num_ops, dtype=np.int64)
    rank[data_order(graph.edges)] = np.arange(graph.num_ops)
    began_ns = progress_start_ns(graph, schedule)
    return np.lexsort((rank, schedule.end_ns, began_ns)).astype(np.int32)
