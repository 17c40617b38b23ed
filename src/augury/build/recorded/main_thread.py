"""Segments of a rank's main thread in a timed step."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from augury.build.recorded.detail_window import Detail, main_thread_events
from augury.build.recorded.gradient_buckets import BucketTable
from augury.build.recorded.recorded_collectives import Awaited, RecordedCollective
from augury.build.recorded.thread_segments import ThreadSegment, lay, tile, waiting, without_waits
from augury.core.columns import I4
from augury.core.enums import KIND_OF_PHASE, OpKind, Phase
from augury.core.graph.graph import NONE
from augury.core.time_intervals import IntervalSet
from augury.core.trace.trace import Trace
from augury.core.vocabulary.torch import ACCUMULATES_GRADIENT, COPY_BUCKET


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadStep:
    """The main thread of one rank in one timed step."""

    segments: list[ThreadSegment]
    end_ns: dict[int, int]
    """End of each collective of the rank in this step, by key. It is earlier than recorded where
    the thread went on before the recorded end."""


def thread_step(
    trace: Trace,
    rank: int,
    step: int,
    *,
    detail: Detail,
    buckets: BucketTable,
    collectives: dict[int, RecordedCollective],
    reductions: Sequence[int],
    awaited: Awaited,
) -> ThreadStep:
    """Splits the main thread of a rank in a timed step into segments of work. ``collectives`` are
    those of the rank in this step, by key; ``reductions`` the keys of those that carry buckets, in
    order; ``awaited`` the collectives of all steps and ranks that the thread may wait for."""
    row = int(np.flatnonzero((trace.steps.rank == rank) & (trace.steps.step == step))[0])
    start_ns, end_ns = int(trace.steps.start_ns[row]), int(trace.steps.end_ns[row])
    top = main_thread_events(trace, rank, start_ns, end_ns)
    events = _number_gradients(_without_updates_inside(trace, rank, top), len(buckets.names))
    own = {key: one for key, one in collectives.items() if key not in reductions}
    waits, ends_ns = _waits_of_program(trace, rank, own, awaited, start_ns, end_ns)
    last = max((i for i, segment in enumerate(events) if segment.gradient >= 0), default=None)
    if reductions and last is not None:
        until_ns = events[last + 1].start_ns if last + 1 < len(events) else end_ns
        prepared_ns = events[last].end_ns + (detail.prepare_ns[-1] if detail.prepare_ns else 0)
        costs = [
            sum(detail.copy_ns[i] for i in own) if detail.copy_ns else 0 for own in buckets.members
        ]
        carrying = {key: collectives[key] for key in reductions}
        ends_ns |= _ends_before(carrying, rank, costs, until_ns)
        copies = _copies_back(
            [(key, ends_ns[key], collectives[key].size_bytes) for key in reductions],
            costs,
            start_ns=min(prepared_ns, until_ns),
            end_ns=until_ns,
        )
        events[last + 1 : last + 1] = [segment for segment in copies if segment.kind != OpKind.SYNC]
        waits += [segment for segment in copies if segment.kind == OpKind.SYNC]
    share = _share_of_gaps(events, waits, start_ns, end_ns, detail.unexplained)
    tiles = tile(lay(events, waits), start_ns=start_ns, end_ns=end_ns, unexplained=share)
    return ThreadStep(segments=list(without_waits(tiles)), end_ns=ends_ns)


def _waits_of_program(
    trace: Trace,
    rank: int,
    collectives: dict[int, RecordedCollective],
    awaited: Awaited,
    start_ns: int,
    end_ns: int,
) -> tuple[list[ThreadSegment], dict[int, int]]:
    """Returns the waits of the program for communication, and the ends of collectives that these
    show to be earlier than recorded. A recorded wait counts, and the segment that contains the call
    is split there. Collectives called in C++, such as broadcasts of BatchNorm's buffers, are waited
    for at once. Without a barrier, forward waits for communication of the step before."""
    events = trace.events
    rows = np.arange(trace.of_rank(rank).start, trace.of_rank(rank).stop)
    rows = rows[(events.kind[rows] == OpKind.SYNC) & (events.group[rows] != NONE)]
    seen = {(int(events.group[row]), int(events.sequence[row])): row for row in rows.tolist()}
    waits: list[ThreadSegment] = []
    ends_ns: dict[int, int] = {}
    for name, row in seen.items():
        if not start_ns <= int(events.start_ns[row]) < end_ns or name not in awaited:
            continue
        key = awaited[name]
        if key not in collectives:
            begin_ns = int(events.start_ns[row])
            until_ns = min(begin_ns + int(events.dur_ns[row]), end_ns)
            waits.append(waiting(begin_ns, max(until_ns, begin_ns), key))
    for key, one in collectives.items():
        row = seen.get((one.group, one.sequence))
        called_ns = max(one.arrival_ns[rank], start_ns)
        if one.is_message or (row is not None and int(events.start_ns[row]) >= end_ns):
            waits.append(_call(called_ns))
        elif row is not None:
            begin_ns = max(int(events.start_ns[row]), start_ns)
            until_ns = min(int(events.start_ns[row] + events.dur_ns[row]), end_ns)
            ends_ns[key] = min(one.end_ns[rank], max(until_ns, one.start_ns[rank]))
            waits.append(waiting(begin_ns, max(until_ns, begin_ns), key))
            waits.append(_call(called_ns))
        elif one.kind == OpKind.BROADCAST or not seen:
            waits.append(waiting(max(one.start_ns[rank], start_ns), one.end_ns[rank], key))
    return waits, ends_ns


def _call(at_ns: int) -> ThreadSegment:
    """Returns the mark of a call, at which the segment that contains it is split."""
    return replace(waiting(at_ns, at_ns, 0), waits_for=())


def _segment(trace: Trace, event: int) -> ThreadSegment:
    """Returns an event as a segment. An event of no other kind gets the kind of its phase."""
    events = trace.events
    kind = OpKind(int(events.kind[event]))
    return ThreadSegment(
        kind=KIND_OF_PHASE[Phase(int(events.phase[event]))] if kind == OpKind.OTHER else kind,
        name=trace.name(event),
        start_ns=int(events.start_ns[event]),
        end_ns=int(events.start_ns[event] + events.dur_ns[event]),
        layer=trace.strings[int(events.layer[event])],
    )


def _without_updates_inside(trace: Trace, rank: int, top: I4) -> list[ThreadSegment]:
    """Returns the outermost events as segments. Without a barrier, parameters are updated within
    the next forward, which is split at each update."""
    events, own = trace.events, trace.of_rank(rank)
    inside: dict[int, list[int]] = defaultdict(list)
    is_update = (events.phase[own] == Phase.UPDATE) & (events.parent[own] != NONE)
    for row in (
        np.flatnonzero(is_update & (events.kind[own] == OpKind.UPDATE)) + own.start
    ).tolist():
        inside[int(events.parent[row])].append(row)
    segments: list[ThreadSegment] = []
    for event in top.tolist():
        left = _segment(trace, event)
        updates = inside[event] if events.phase[event] == Phase.FORWARD else []
        for row in updates:
            update = _segment(trace, row)
            if left.start_ns <= update.start_ns and update.end_ns <= left.end_ns:
                segments += [replace(left, end_ns=update.start_ns), update]
                left = replace(left, start_ns=update.end_ns)
        segments.append(left)
    return segments


def _number_gradients(events: list[ThreadSegment], count: int) -> list[ThreadSegment]:
    """Numbers the gradients of the last backward of a step: those are communicated."""
    places = [i for i, segment in enumerate(events) if segment.name == ACCUMULATES_GRADIENT]
    if not count or len(places) < count:
        return events
    numbered = list(events)
    for gradient, place in enumerate(places[-count:]):
        numbered[place] = replace(numbered[place], gradient=gradient)
    return numbered


def _ends_before(
    reductions: dict[int, RecordedCollective], rank: int, costs: list[int], until_ns: int
) -> dict[int, int]:
    """Returns the ends of reductions before the copies that followed them. A communication thread
    may lose its core to the main thread that it has just woken, and record a later end."""
    ends_ns: dict[int, int] = {}
    for (key, one), cost in zip(reversed(reductions.items()), reversed(costs), strict=True):
        until_ns = max(until_ns - cost, one.start_ns[rank])
        ends_ns[key] = min(one.end_ns[rank], until_ns)
    return ends_ns


def _copies_back(
    arrivals: list[tuple[int, int, int]], costs: list[int], *, start_ns: int, end_ns: int
) -> list[ThreadSegment]:
    """Returns the waits and copies after backward: DDP waits for one bucket after the other and
    copies each back into gradients. Copy times come from detailed steps, and are shortened if they
    do not fit the recorded time."""
    segments: list[ThreadSegment] = []
    for scale in (1.0, 0.75, 0.5, 0.25, 0.0):
        segments, at_ns = [], start_ns
        for (key, arrived_ns, size_bytes), cost in zip(arrivals, costs, strict=True):
            ready_ns = min(arrived_ns, end_ns)
            if ready_ns > at_ns:
                segments.append(waiting(at_ns, ready_ns, key))
                at_ns = ready_ns
            done_ns = at_ns + round(cost * scale)
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


def _share_of_gaps(
    events: list[ThreadSegment],
    waits: list[ThreadSegment],
    start_ns: int,
    end_ns: int,
    unexplained: float | None,
) -> float:
    """Returns the share of the gaps between events that no operation explains."""
    if unexplained is None:
        return 1.0
    begin, end = np.array([start_ns]), np.array([end_ns])
    waited = [(wait.start_ns, wait.end_ns) for wait in waits]
    worked = [(segment.start_ns, segment.end_ns) for segment in events]
    waited_ns = float(IntervalSet(waited).within(begin, end)[0])
    known_ns = float(IntervalSet([*waited, *worked]).within(begin, end)[0])
    gaps_ns = end_ns - start_ns - known_ns
    working_ns = end_ns - start_ns - waited_ns
    return min(1.0, unexplained * working_ns / gaps_ns) if gaps_ns > 0 else 0.0
