"""What a rank's main thread did in a timed step, told with the help of its detailed steps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from augury.build.recorded.ddp_buckets import BucketTable
from augury.build.recorded.detail_window import Detail, main_thread_events
from augury.build.recorded.recorded_collectives import Awaited, RecordedCollective
from augury.build.recorded.thread_segments import ThreadSegment, lay, tile, waiting, without_waits
from augury.core.columns import I4
from augury.core.enums import KIND_OF_PHASE, OpKind, Phase
from augury.core.graph.graph import NONE
from augury.core.time_intervals import IntervalSet
from augury.core.trace.trace import Trace

ACCUMULATES = "torch::autograd::AccumulateGrad"


def step_pieces(
    trace: Trace,
    rank: int,
    step: int,
    *,
    detail: Detail,
    buckets: BucketTable,
    exchanges: dict[int, RecordedCollective],
    reductions: Sequence[int],
    awaited: Awaited,
) -> list[ThreadSegment]:
    """``exchanges``: those of the rank in this step, by key; ``awaited``: of all steps and ranks,
    for what the thread may wait; ``reductions``: the keys of those that
    carry buckets, in order, whose ends on this rank are corrected where the thread shows that they
    came earlier."""
    row = int(np.flatnonzero((trace.steps.rank == rank) & (trace.steps.step == step))[0])
    start_ns, end_ns = int(trace.steps.start_ns[row]), int(trace.steps.end_ns[row])
    top = main_thread_events(trace, rank, start_ns, end_ns)
    events = _number_gradients(_without_updates_inside(trace, rank, top), len(buckets.names))
    own = {key: exchange for key, exchange in exchanges.items() if key not in reductions}
    waits = _waits_of_program(trace, rank, own, awaited, start_ns, end_ns)
    last = max((i for i, piece in enumerate(events) if piece.gradient >= 0), default=None)
    if reductions and last is not None:
        until_ns = events[last + 1].start_ns if last + 1 < len(events) else end_ns
        prepared_ns = events[last].end_ns + (detail.prepare_ns[-1] if detail.prepare_ns else 0)
        costs = [
            sum(detail.copy_ns[i] for i in own) if detail.copy_ns else 0 for own in buckets.members
        ]
        _end_in_time([exchanges[key] for key in reductions], rank, costs, until_ns)
        copies = _copies_back(
            [(key, exchanges[key].end_ns[rank], exchanges[key].size_bytes) for key in reductions],
            costs,
            start_ns=min(prepared_ns, until_ns),
            end_ns=until_ns,
        )
        events[last + 1 : last + 1] = [piece for piece in copies if piece.kind != OpKind.SYNC]
        waits += [piece for piece in copies if piece.kind == OpKind.SYNC]
    share = _share_of_gaps(events, waits, start_ns, end_ns, detail.unexplained)
    laid = lay(events, waits)
    return list(without_waits(tile(laid, start_ns=start_ns, end_ns=end_ns, unexplained=share)))


def _waits_of_program(
    trace: Trace,
    rank: int,
    exchanges: dict[int, RecordedCollective],
    awaited: Awaited,
    start_ns: int,
    end_ns: int,
) -> list[ThreadSegment]:
    """Where the recorder saw the program wait, that counts, and the piece in which it called is cut
    there. What C++ does by itself, such as sending BatchNorm's buffers, is waited for at once.
    Without a barrier, forward waits for what the step before has sent."""
    events = trace.events
    rows = np.arange(trace.of_rank(rank).start, trace.of_rank(rank).stop)
    rows = rows[(events.kind[rows] == OpKind.SYNC) & (events.group[rows] != NONE)]
    seen = {(int(events.group[row]), int(events.sequence[row])): row for row in rows.tolist()}
    waits: list[ThreadSegment] = []
    for name, row in seen.items():
        if not start_ns <= int(events.start_ns[row]) < end_ns or name not in awaited:
            continue
        key, _ = awaited[name]
        if key not in exchanges:
            begin_ns = int(events.start_ns[row])
            until_ns = min(begin_ns + int(events.dur_ns[row]), end_ns)
            waits.append(waiting(begin_ns, max(until_ns, begin_ns), key))
    for key, exchange in exchanges.items():
        row = seen.get((exchange.group, exchange.sequence))
        called_ns = max(exchange.arrival_ns[rank], start_ns)
        if exchange.is_message or (row is not None and int(events.start_ns[row]) >= end_ns):
            waits.append(_call(called_ns))
        elif row is not None:
            begin_ns = max(int(events.start_ns[row]), start_ns)
            until_ns = min(int(events.start_ns[row] + events.dur_ns[row]), end_ns)
            exchange.end_ns[rank] = min(
                exchange.end_ns[rank], max(until_ns, exchange.start_ns[rank])
            )
            waits.append(waiting(begin_ns, max(until_ns, begin_ns), key))
            waits.append(_call(called_ns))
        elif exchange.kind == OpKind.BROADCAST or not seen:
            waits.append(
                waiting(max(exchange.start_ns[rank], start_ns), exchange.end_ns[rank], key)
            )
    return waits


def _call(at_ns: int) -> ThreadSegment:
    """Where the thread called for something, the piece in which it did so is cut."""
    return replace(waiting(at_ns, at_ns, 0), waits_for=())


def _piece(trace: Trace, event: int) -> ThreadSegment:
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
    """Without a barrier parameters are updated amid the next forward: it is cut there."""
    events, own = trace.events, trace.of_rank(rank)
    inside: dict[int, list[int]] = defaultdict(list)
    is_update = (events.phase[own] == Phase.UPDATE) & (events.parent[own] != NONE)
    for row in (
        np.flatnonzero(is_update & (events.kind[own] == OpKind.UPDATE)) + own.start
    ).tolist():
        inside[int(events.parent[row])].append(row)
    pieces: list[ThreadSegment] = []
    for event in top.tolist():
        left = _piece(trace, event)
        updates = inside[event] if events.phase[event] == Phase.FORWARD else []
        for row in updates:
            update = _piece(trace, row)
            if left.start_ns <= update.start_ns and update.end_ns <= left.end_ns:
                pieces += [replace(left, end_ns=update.start_ns), update]
                left = replace(left, start_ns=update.end_ns)
        pieces.append(left)
    return pieces


def _number_gradients(events: list[ThreadSegment], count: int) -> list[ThreadSegment]:
    """The last backward of a step is the one whose gradients travel."""
    places = [i for i, piece in enumerate(events) if piece.name == ACCUMULATES]
    if not count or len(places) < count:
        return events
    numbered = list(events)
    for gradient, place in enumerate(places[-count:]):
        numbered[place] = replace(numbered[place], gradient=gradient)
    return numbered


def _end_in_time(
    reductions: list[RecordedCollective], rank: int, costs: list[int], until_ns: int
) -> None:
    """Gloo's thread may lose its core to the main thread that it has just woken, and so record an
    end after the main thread went on: the exchange had ended before what followed it."""
    for exchange, cost in zip(reversed(reductions), reversed(costs), strict=True):
        until_ns = max(until_ns - cost, exchange.start_ns[rank])
        exchange.end_ns[rank] = min(exchange.end_ns[rank], until_ns)


def _copies_back(
    arrivals: list[tuple[int, int, int]], costs: list[int], *, start_ns: int, end_ns: int
) -> list[ThreadSegment]:
    """After backward DDP waits for bucket after bucket and copies each back into gradients. What
    copies take comes from detailed steps; shortened where the recorded time leaves less."""
    pieces: list[ThreadSegment] = []
    for scale in (1.0, 0.75, 0.5, 0.25, 0.0):
        pieces, at_ns = [], start_ns
        for (key, arrived_ns, size_bytes), cost in zip(arrivals, costs, strict=True):
            ready_ns = min(arrived_ns, end_ns)
            if ready_ns > at_ns:
                pieces.append(waiting(at_ns, ready_ns, key))
                at_ns = ready_ns
            done_ns = at_ns + round(cost * scale)
            pieces.append(
                ThreadSegment(
                    kind=OpKind.COPY,
                    name="copy bucket to gradients",
                    start_ns=at_ns,
                    end_ns=done_ns,
                    size_bytes=size_bytes,
                    waits_for=(key,),
                )
            )
            at_ns = done_ns
        if at_ns <= end_ns:
            break
    return pieces


def _share_of_gaps(
    events: list[ThreadSegment],
    waits: list[ThreadSegment],
    start_ns: int,
    end_ns: int,
    unexplained: float | None,
) -> float:
    """How much of what lies between events no operation explains."""
    if unexplained is None:
        return 1.0
    begin, end = np.array([start_ns]), np.array([end_ns])
    waited = [(wait.start_ns, wait.end_ns) for wait in waits]
    worked = [(piece.start_ns, piece.end_ns) for piece in events]
    waited_ns = float(IntervalSet(waited).within(begin, end)[0])
    known_ns = float(IntervalSet([*waited, *worked]).within(begin, end)[0])
    gaps_ns = end_ns - start_ns - known_ns
    working_ns = end_ns - start_ns - waited_ns
    return min(1.0, unexplained * working_ns / gaps_ns) if gaps_ns > 0 else 0.0
