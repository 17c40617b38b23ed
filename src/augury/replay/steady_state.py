"""The steady state of a loop: replays windows until the ends of steps recur."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from augury.core.columns import I8
from augury.core.enums import Role
from augury.core.graph.graph import Graph
from augury.core.graph.graph_spec import MAX_SLOWED_NS
from augury.replay.engine import Engine
from augury.replay.op_times import OpTimes
from augury.replay.unroll import unroll
from augury.replay.utilization import Some, rows_where

FIRST_WINDOWS = 4
MAX_WINDOWS = 64
MAX_UNROLLED_OPS = 1 << 24
MAX_PATTERN = 4
"""Longest pattern, in windows: the times may alternate between a few different windows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SteadyState:
    """Replay of several windows in a row, the last ``pattern`` of which recur."""

    window: Graph
    op_times: OpTimes
    """Times in all windows."""
    num_windows: int
    pattern: int
    window_end_ns: I8
    """End of each window on each rank; 0 for ranks that do not train."""
    last_op: int
    """Operation with which the last window ends."""
    least_period_ns: float
    has_settled: bool

    @property
    def unrolled(self) -> Graph:
        """All windows as one graph; a new copy on each access."""
        return unroll(self.window, self.num_windows)

    @property
    def period_ns(self) -> float:
        """Period of a window on the slowest rank, for which all others wait in the end."""
        return max(*self.rank_period_ns(), self.least_period_ns)

    def rank_period_ns(self) -> list[float]:
        return _periods(self.window_end_ns, self.pattern)


def find_steady_state(graph: Graph, simulate: Engine) -> SteadyState:
    """Adds windows until the ends on all ranks recur: at least three at equal distances."""
    timed = _timed(graph)
    least_period_ns = _busiest_ns(graph, timed)
    num_windows = FIRST_WINDOWS
    while True:
        op_times = simulate(graph, num_windows)
        end_ns = op_times.end_ns.reshape(num_windows, graph.num_ops)
        ends = _window_ends(graph, timed, end_ns)
        pattern = _pattern(np.diff(ends, axis=0))
        if pattern and max(_periods(ends, pattern)) < least_period_ns:
            pattern = 0  # a backlog that shrinks only because no more windows follow
        grows_too_large = (
            2 * num_windows > MAX_WINDOWS
            or 2 * num_windows * graph.num_ops > MAX_UNROLLED_OPS
            or ends.max() > MAX_SLOWED_NS  # twice as much might overflow the clock
        )
        if pattern or grows_too_large:
            return SteadyState(
                window=graph,
                op_times=op_times,
                num_windows=num_windows,
                pattern=pattern or num_windows // 2,
                window_end_ns=ends,
                last_op=(num_windows - 1) * graph.num_ops + _last_to_end(timed, end_ns[-1]),
                least_period_ns=least_period_ns,
                has_settled=bool(pattern),
            )
        num_windows *= 2


def _timed(graph: Graph) -> Some:
    """Returns the operations that make up the steps: those of workers, if there are any."""
    is_worker = graph.ranks.role == Role.WORKER
    inside = graph.ops.step >= 0
    if not is_worker.all():
        inside &= is_worker[graph.ops.rank]
    return rows_where(inside) if inside.any() else slice(None)


def _busiest_ns(graph: Graph, timed: Some) -> float:
    """Returns the work of a window on the busiest resource, a lower bound on the period."""
    # The last entry, selected by index -1, means no resource.
    work_ns = np.zeros(len(graph.resources) + 1, dtype=np.int64)
    np.add.at(work_ns, graph.ops.resource[timed], graph.ops.work_ns[timed])
    return float((work_ns[:-1] / graph.resources.width).max(initial=0))


def _window_ends(graph: Graph, timed: Some, end_ns: I8) -> I8:
    """Returns the end of each window on each rank; ``end_ns`` is by window and operation."""
    rank = graph.ops.rank[timed].astype(np.intp)  # converted once, not in every window
    ends = np.zeros((len(end_ns), len(graph.ranks)), dtype=np.int64)
    for window, of_ops in zip(ends, end_ns, strict=True):
        np.maximum.at(window, rank, of_ops[timed])
    return ends


def _last_to_end(timed: Some, end_ns: I8) -> int:
    number = int(end_ns[timed].argmax())
    return number if isinstance(timed, slice) else int(timed[number])


def _periods(ends: I8, pattern: int) -> list[float]:
    periods: list[float] = ((ends[-1] - ends[-1 - pattern]) / pattern).tolist()
    return periods


def _pattern(gaps: I8) -> int:
    """Returns the length of the shortest sequence of gaps that occurred twice in a row, or 0."""
    for length in range(1, MAX_PATTERN + 1):
        if len(gaps) >= 2 * length and (gaps[-length:] == gaps[-2 * length : -length]).all():
            return length
    return 0
