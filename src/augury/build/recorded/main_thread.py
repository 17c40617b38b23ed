"""Segments of a rank's main thread in a timed step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from augury.build.recorded.detail_window import Detail, main_thread_events
from augury.build.recorded.gradient_buckets import BucketTable
from augury.build.recorded.phase_segments import phase_segments
from augury.build.recorded.recorded_collectives import Awaited, RecordedCollective
from augury.build.recorded.thread_segments import ThreadSegment, lay, tile, waiting, without_waits
from augury.core.enums import OpKind
from augury.core.graph.graph import NONE
from augury.core.time_intervals import IntervalSet
from augury.core.trace.trace import Trace
from augury.core.vocabulary.torch import ACCUMULATES_GRADIENT, COPY_BUCKET


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadStep:
    """The main thread of one rank in one timed step."""

    segments: list[ThreadSegment]
    end_ns: dict[int, int]
    """Ends of the collectives that the thread waited for in this step, by key. An end is earlier
    than recorded if the thread continued before the recorded end."""


def thread_step(
    trace: Trace,
    rank: int,
    step: int,
    *,
    detail: Detail,
    buckets: BucketTable,
    collectives: dict[int, RecordedCollective],
    reductions: Sequence[int],
    earlier: Sequence[Sequence[int]],
    awaited: Awaited,
) -> ThreadStep:
    """Splits the main thread of a rank in a timed step into segments of work.

    ``collectives`` are those of the rank in this step, by key. ``reductions`` are the keys of the
    collectives that carry buckets, in order; ``earlier`` are those of earlier backwards, the latest
    backward first. ``awaited`` are the collectives of all steps and ranks
    that the thread may wait for."""
    row = int(np.flatnonzero((trace.steps.rank == rank) & (trace.steps.step == step))[0])
    start_ns, end_ns = int(trace.steps.start_ns[row]), int(trace.steps.end_ns[row])
    top = main_thread_events(trace, rank, start_ns, end_ns)
    work = _number_gradients(phase_segments(trace, rank, top), len(buckets.names))
    of_program = {key: one for key, one in collectives.items() if key not in reductions}
    after = _after_backwards(work, earlier, len(buckets.names))
    waits, ends_ns = _waits_of_program(trace, rank, of_program, awaited, after, start_ns, end_ns)
    last = max((i for i, segment in enumerate(work) if segment.gradient >= 0), default=None)
    if reductions and last is not None:
        # Stock DDP waits for its buckets between the last gradient and the next event.
        next_ns = work[last + 1].start_ns if last + 1 < len(work) else end_ns
        prepared_ns = work[last].end_ns + (detail.prepare_ns[-1] if detail.prepare_ns else 0)
        copy_costs_ns = [
            sum(detail.copy_ns[i] for i in members) if detail.copy_ns else 0
            for members in buckets.members
        ]
        carrying = {key: collectives[key] for key in reductions}
        ends_ns |= _ends_before_copies(carrying, rank, copy_costs_ns, next_ns)
        waits_and_copies = _wait_and_copy_back(
            [(key, ends_ns[key], collectives[key].size_bytes) for key in reductions],
            copy_costs_ns,
            start_ns=min(prepared_ns, next_ns),
            end_ns=next_ns,
        )
        copies = [segment for segment in waits_and_copies if segment.kind != OpKind.SYNC]
        work[last + 1 : last + 1] = copies
        waits += [segment for segment in waits_and_copies if segment.kind == OpKind.SYNC]
    unexplained = _unexplained_share_of_gaps(work, waits, start_ns, end_ns, detail.unexplained)
    tiles = tile(lay(work, waits), start_ns=start_ns, end_ns=end_ns, unexplained=unexplained)
    return ThreadStep(segments=list(without_waits(tiles)), end_ns=ends_ns)


def _waits_of_program(
    trace: Trace,
    rank: int,
    collectives: dict[int, RecordedCollective],
    awaited: Awaited,
    after: dict[int, tuple[int, int]],
    start_ns: int,
    end_ns: int,
) -> tuple[list[ThreadSegment], dict[int, int]]:
    """Returns the waits of the program for communication, and the ends of the collectives whose
    waits were recorded.

    A recorded wait is taken as it is, and the call of its collective becomes a mark that splits the
    segment around it. Broadcasts without a recorded wait, such as those of BatchNorm's buffers, are
    called in C++, and the thread waits from their start to their end. The same is assumed of all
    collectives if the rank recorded no waits. DDP waits for those in ``after`` once their backward
    is complete: between the two times. Under a plan without a barrier, forward also waits
    for communication of the step before."""
    events = trace.events
    rows = np.arange(trace.of_rank(rank).start, trace.of_rank(rank).stop)
    rows = rows[(events.kind[rows] == OpKind.SYNC) & (events.group[rows] != NONE)]
    wait_rows = {(int(events.group[row]), int(events.sequence[row])): row for row in rows.tolist()}
    waits: list[ThreadSegment] = []
    ends_ns: dict[int, int] = {}
    for group_and_sequence, row in wait_rows.items():
        is_in_step = start_ns <= int(events.start_ns[row]) < end_ns
        if not is_in_step or group_and_sequence not in awaited:
            continue
        key = awaited[group_and_sequence]
        if key not in collectives:  # a collective of another step
            begin_ns = int(events.start_ns[row])
            until_ns = min(begin_ns + int(events.dur_ns[row]), end_ns)
            waits.append(waiting(begin_ns, max(until_ns, begin_ns), key))
    for key, one in collectives.items():
        row = wait_rows.get((one.group, one.sequence))
        called_ns = max(one.arrival_ns[rank], start_ns)
        is_awaited_later = row is not None and int(events.start_ns[row]) >= end_ns
        if one.is_message or is_awaited_later:
            waits.append(_call_mark(called_ns))
        elif row is not None:
            begin_ns = max(int(events.start_ns[row]), start_ns)
            until_ns = min(int(events.start_ns[row] + events.dur_ns[row]), end_ns)
            ends_ns[key] = min(one.end_ns[rank], max(until_ns, one.start_ns[rank]))
            waits.append(waiting(begin_ns, max(until_ns, begin_ns), key))
            waits.append(_call_mark(called_ns))
        elif key in after:
            begin_ns, next_ns = after[key]
            ends_ns[key] = min(one.end_ns[rank], max(next_ns, one.start_ns[rank]))
            waits.append(waiting(begin_ns, max(ends_ns[key], begin_ns), key))
        elif one.kind == OpKind.BROADCAST or not wait_rows:
            waits.append(waiting(max(one.start_ns[rank], start_ns), one.end_ns[rank], key))
    return waits, ends_ns


def _after_backwards(
    work: list[ThreadSegment], earlier: Sequence[Sequence[int]], num_gradients: int
) -> dict[int, tuple[int, int]]:
    """Returns, for the reductions of ``earlier`` backwards, the end of the last gradient of their
    backward and the start of the segment after it."""
    made = [i for i, segment in enumerate(work) if segment.name == ACCUMULATES_GRADIENT]
    found: dict[int, tuple[int, int]] = {}
    for place, keys in enumerate(earlier, start=1):
        if len(made) < (place + 1) * num_gradients:
            break
        last = made[-place * num_gradients - 1]
        found |= dict.fromkeys(keys, (work[last].end_ns, work[last + 1].start_ns))
    return found


def _call_mark(at_ns: int) -> ThreadSegment:
    """Returns an empty wait for nothing. It marks the call of a collective, and splits the segment
    during which the call was made."""
    return replace(waiting(at_ns, at_ns, 0), waits_for=())


def _number_gradients(segments: list[ThreadSegment], num_gradients: int) -> list[ThreadSegment]:
    """Numbers the segments that accumulate the gradients of the last backward of a step, which are
    the communicated ones."""
    indices = [i for i, segment in enumerate(segments) if segment.name == ACCUMULATES_GRADIENT]
    if not num_gradients or len(indices) < num_gradients:
        return segments
    numbered = list(segments)
    for gradient, index in enumerate(indices[-num_gradients:]):
        numbered[index] = replace(numbered[index], gradient=gradient)
    return numbered


def _ends_before_copies(
    reductions: dict[int, RecordedCollective], rank: int, copy_costs_ns: list[int], until_ns: int
) -> dict[int, int]:
    """Returns the ends of reductions, early enough for the copies after them to end by
    ``until_ns``. Recorded ends may be too late: a communication thread may lose its core to the
    main thread that it has just woken."""
    ends_ns: dict[int, int] = {}
    backwards = zip(reversed(reductions.items()), reversed(copy_costs_ns), strict=True)
    for (key, one), cost_ns in backwards:
        until_ns = max(until_ns - cost_ns, one.start_ns[rank])
        ends_ns[key] = min(one.end_ns[rank], until_ns)
    return ends_ns


def _wait_and_copy_back(
    arrivals: list[tuple[int, int, int]], copy_costs_ns: list[int], *, start_ns: int, end_ns: int
) -> list[ThreadSegment]:
    """Returns the waits and copies of DDP after backward. DDP waits for one bucket after the other
    and copies each back into gradients. ``arrivals`` has the key, the end and the size of each
    reduction. Copy times come from detailed steps; they are scaled down until the copies fit
    between ``start_ns`` and ``end_ns``."""
    segments: list[ThreadSegment] = []
    for scale in (1.0, 0.75, 0.5, 0.25, 0.0):
        segments, at_ns = [], start_ns
        for (key, arrived_ns, size_bytes), cost_ns in zip(arrivals, copy_costs_ns, strict=True):
            ready_ns = min(arrived_ns, end_ns)
            if ready_ns > at_ns:
                segments.append(waiting(at_ns, ready_ns, key))
                at_ns = ready_ns
            done_ns = at_ns + round(cost_ns * scale)
            segments.append(
                ThreadSegment(
                    kind=OpKind.COPY,
                    name=COPY_BUCKET,
                    start_ns=at_ns,
                    end_ns=done_ns,
                    size_bytes=size_bytes,
                    waits_for=(key,),
                )
            )
            at_ns = done_ns
        if at_ns <= end_ns:
            break
    return segments


def _unexplained_share_of_gaps(
    work: list[ThreadSegment],
    waits: list[ThreadSegment],
    start_ns: int,
    end_ns: int,
    unexplained: float | None,
) -> float:
    """Returns the share of the gaps between segments that no operation explains. ``unexplained`` is
    the same time as a share of the working time, from detailed steps; None without them."""
    if unexplained is None:
        return 1.0
    begin, end = np.array([start_ns]), np.array([end_ns])
    waited = [(wait.start_ns, wait.end_ns) for wait in waits]
    worked = [(segment.start_ns, segment.end_ns) for segment in work]
    waited_ns = float(IntervalSet(waited).within(begin, end)[0])
    known_ns = float(IntervalSet([*waited, *worked]).within(begin, end)[0])
    gaps_ns = end_ns - start_ns - known_ns
    working_ns = end_ns - start_ns - waited_ns
    return min(1.0, unexplained * working_ns / gaps_ns) if gaps_ns > 0 else 0.0
