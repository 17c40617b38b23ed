"""The steady state: how long a step takes once the start of the job no longer matters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from augury.core.graph import Graph
from augury.core.kinds import Role
from augury.core.table import I8
from augury.replay.schedule import Schedule
from augury.replay.unroll import unroll

FIRST_WINDOWS = 4
MAX_WINDOWS = 64
MAX_UNROLLED_OPS = 1 << 24
MAX_PATTERN = 4
"""Schedules may settle into a pattern of a few windows rather than into one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Steady:
    """Several windows in a row, replayed; ``pattern`` of them repeat for ever."""

    unrolled: Graph
    schedule: Schedule
    num_windows: int
    pattern: int
    window_end_ns: I8
    """By window and rank; ranks that do not train count 0."""
    has_settled: bool

    @property
    def period_ns(self) -> float:
        """Per window."""
        ends = self.window_end_ns.max(axis=1)
        return float(ends[-1] - ends[-1 - self.pattern]) / self.pattern

    def rank_period_ns(self) -> list[float]:
        ends = self.window_end_ns
        periods: list[float] = ((ends[-1] - ends[-1 - self.pattern]) / self.pattern).tolist()
        return periods


def find_steady_state(graph: Graph, simulate: Callable[[Graph], Schedule]) -> Steady:
    """Unrolls until the windows' ends recur: at least three in a row at the same distance."""
    num_windows = FIRST_WINDOWS
    while True:
        unrolled = unroll(graph, num_windows)
        schedule = simulate(unrolled)
        ends = _window_ends(graph, schedule, num_windows)
        pattern = _pattern(np.diff(ends.max(axis=1)))
        grows_too_large = (
            2 * num_windows > MAX_WINDOWS or 2 * num_windows * graph.num_ops > MAX_UNROLLED_OPS
        )
        if pattern or grows_too_large:
            return Steady(
                unrolled=unrolled,
                schedule=schedule,
                num_windows=num_windows,
                pattern=pattern or num_windows // 2,
                window_end_ns=ends,
                has_settled=bool(pattern),
            )
        num_windows *= 2


def _window_ends(graph: Graph, schedule: Schedule, num_windows: int) -> I8:
    is_worker = (graph.ranks.role == Role.WORKER)[graph.ops.rank]
    inside = np.flatnonzero(is_worker & (graph.ops.step >= 0))
    rank = graph.ops.rank[inside]
    ends = np.zeros((num_windows, len(graph.ranks)), dtype=np.int64)
    end_ns = schedule.end_ns.reshape(num_windows, graph.num_ops)[:, inside]
    for window in range(num_windows):
        np.maximum.at(ends[window], rank, end_ns[window])
    return ends


def _pattern(gaps: I8) -> int:
    """The shortest run of gaps between ends that just happened twice; 0 if there is none."""
    for length in range(1, MAX_PATTERN + 1):
        if len(gaps) >= 2 * length and (gaps[-length:] == gaps[-2 * length : -length]).all():
            return length
    return 0
