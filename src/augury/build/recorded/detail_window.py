"""What the detailed steps of a rank tell of its timed ones, which see less."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from augury.core.columns import I4
from augury.core.enums import OpKind, StepState, StreamKind, are_communication
from augury.core.graph.graph import NONE
from augury.core.trace.trace import Trace

PREPARES_GRADIENT = "torch::distributed::reducer::mul_out"
COPIES_GRADIENT = "torch.distributed.ddp.reducer::copy_bucket_to_grad"


@dataclass(frozen=True, slots=True, kw_only=True)
class Detail:
    """``unexplained``: the share of a rank's working time that no recorded operation covers; None
    where nobody looked. Of every gradient, in the order in which they come: how long it takes to
    lay it into its bucket, and to take it out again."""

    unexplained: float | None = None
    prepare_ns: Sequence[int] = field(default=())
    copy_ns: Sequence[int] = field(default=())


def detail_of(trace: Trace, rank: int, *, num_gradients: int) -> Detail:
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
    """Rows of what the main thread did between two times, outermost events only, in order."""
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
    """Of the time in which the thread did not wait for communication."""
    events = trace.events
    begin = np.clip(events.start_ns[top], start_ns, end_ns)
    end = np.clip(events.start_ns[top] + events.dur_ns[top], start_ns, end_ns)
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
