"""Figures of a rank's detailed steps that its timed steps do not show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from augury.build.recorded.phase_segments import phase_segments
from augury.core.columns import I4
from augury.core.enums import OpKind, StepState, StreamKind, are_communication
from augury.core.graph.graph import NONE
from augury.core.trace.trace import Trace
from augury.core.vocabulary.torch import COPIES_GRADIENT, PREPARES_GRADIENT


@dataclass(frozen=True, slots=True, kw_only=True)
class Detail:
    """Medians over the detailed steps of one rank."""

    unexplained: float | None = None
    """Share of the rank's working time that no recorded operation covers; None without detailed
    steps."""
    prepare_ns: Sequence[int] = field(default=())
    """Time to copy each gradient into its bucket, in the order in which backward makes them."""
    copy_ns: Sequence[int] = field(default=())
    """Time to copy each gradient out of its bucket, in the same order."""


def detail_of(trace: Trace, rank: int, *, num_gradients: int) -> Detail:
    """Returns the figures of a rank's detailed steps. Steps with another number of copies than
    gradients are left out of the copy times."""
    steps = trace.steps
    chosen = np.flatnonzero((steps.rank == rank) & (steps.state == StepState.DETAILED))
    shares: list[float] = []
    prepare: list[list[int]] = []
    copy: list[list[int]] = []
    for row in chosen.tolist():
        start_ns, end_ns = int(steps.start_ns[row]), int(steps.end_ns[row])
        top = main_thread_events(trace, rank, start_ns, end_ns)
        if not len(top):
            continue
        shares.append(_unexplained(trace, rank, top, start_ns, end_ns))
        for name, found in ((PREPARES_GRADIENT, prepare), (COPIES_GRADIENT, copy)):
            durations = _durations(trace, rank, name, start_ns, end_ns)
            if num_gradients and len(durations) == num_gradients:
                found.append(durations)
    return Detail(
        unexplained=float(np.median(shares)) if shares else None,
        prepare_ns=_median_of_each(prepare),
        copy_ns=_median_of_each(copy),
    )


def main_thread_events(trace: Trace, rank: int, start_ns: int, end_ns: int) -> I4:
    """Returns the outermost events of the main thread between two times, in order, as rows."""
    rows = np.arange(trace.of_rank(rank).start, trace.of_rank(rank).stop, dtype=np.int32)
    events = trace.events
    is_main = trace.streams.kind[events.stream[rows]] == StreamKind.MAIN_THREAD
    is_wait = (events.kind[rows] == OpKind.SYNC) & (events.group[rows] != NONE)
    rows = rows[is_main & ~is_wait & (events.parent[rows] == NONE)]
    inside = (events.start_ns[rows] + events.dur_ns[rows] > start_ns) & (
        events.start_ns[rows] < end_ns
    )
    rows = rows[inside]
    return np.asarray(rows[np.argsort(events.start_ns[rows], kind="stable")])


def _unexplained(trace: Trace, rank: int, top: I4, start_ns: int, end_ns: int) -> float:
    """Returns the uncovered share of the time in which the thread did not wait for
    communication."""
    events, segments = trace.events, phase_segments(trace, rank, top)
    begin = np.clip([segment.start_ns for segment in segments], start_ns, end_ns)
    end = np.clip([segment.end_ns for segment in segments], start_ns, end_ns)
    reach = np.maximum.accumulate(end)
    gap_begin = np.concatenate([[start_ns], reach])
    gap_end = np.maximum(np.concatenate([begin, [end_ns]]), gap_begin)
    rows = slice(*np.searchsorted(events.rank, [rank, rank + 1]))
    is_communication = are_communication(events.kind[rows])
    calls = np.flatnonzero(is_communication) + rows.start
    waited = 0
    for first, last in zip(gap_begin.tolist(), gap_end.tolist(), strict=True):
        overlap = np.minimum(last, events.start_ns[calls] + events.dur_ns[calls]) - np.maximum(
            first, events.start_ns[calls]
        )
        # A gap during communication counts as waiting until the last of it has ended.
        ends = (events.start_ns[calls] + events.dur_ns[calls])[overlap > 0]
        if len(ends):
            waited += min(last, int(ends.max())) - first
    gaps = int((gap_end - gap_begin).sum())
    return (gaps - waited) / max(1, end_ns - start_ns - waited)


def _durations(trace: Trace, rank: int, name: str, start_ns: int, end_ns: int) -> list[int]:
    """Returns the durations of a rank's events of this name between two times, in order."""
    events = trace.events
    rows = np.arange(trace.of_rank(rank).start, trace.of_rank(rank).stop)
    wanted = [number for number, text in enumerate(trace.strings) if text == name]
    inside = (
        np.isin(events.name[rows], wanted)
        & (events.start_ns[rows] >= start_ns)
        & (events.start_ns[rows] < end_ns)
    )
    rows = rows[inside]
    order = np.argsort(events.start_ns[rows], kind="stable")
    return [int(ns) for ns in events.dur_ns[rows][order]]


def _median_of_each(found: list[list[int]]) -> list[int]:
    return [int(ns) for ns in np.median(np.array(found), axis=0)] if found else []
