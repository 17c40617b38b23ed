"""Utilization of links over a step, and the split of the time of collectives."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from numpy.typing import NDArray

from augury.core.enums import StepState, are_communication
from augury.core.graph.graph import NONE
from augury.core.results.wire import TimeOfCollectives
from augury.core.time_intervals import Interval, IntervalSet
from augury.core.trace.trace import Trace
from augury.core.wire import MessageKind, Messages, Wire

SLICES = 24
"""Number of equal slices of a step."""

RankPair = tuple[int, int]
"""Sender and receiver."""


def utilization_over_step(wire: Wire, trace: Trace) -> dict[RankPair, list[float]]:
    """Returns for each link the percentage of each slice of a step in which messages were in
    flight, as the mean over the recorded steps."""
    steps = trace.steps
    timed = np.flatnonzero(steps.state == StepState.TIMED)
    busy = {link: IntervalSet(own) for link, own in _in_flight(wire).items()}
    if not len(timed) or not busy:
        return {}
    share = np.linspace(0.0, 1.0, SLICES + 1)
    found: dict[RankPair, list[float]] = {}
    for link, own in busy.items():
        rows = timed[steps.rank[timed] == link[1]]
        length = (steps.end_ns - steps.start_ns)[rows]
        edges = steps.start_ns[rows][:, None] + np.rint(length[:, None] * share).astype(np.int64)
        spent = np.diff(own.until(edges.ravel()).reshape(edges.shape), axis=1)
        slices = np.maximum(1, np.diff(edges, axis=1))
        found[link] = [] if not len(rows) else (100 * spent / slices).mean(axis=0).tolist()
    return found


def time_of_collectives(wire: Wire, trace: Trace) -> TimeOfCollectives | None:
    """Splits the time of all members of all collectives: waiting for the last rank to arrive,
    messages in flight to the member, and the rest, in which processors work or are missing."""
    events = trace.events
    is_communication = are_communication(events.kind)
    rows = np.flatnonzero(is_communication & (events.sequence != NONE) & (events.step >= 0))
    members: dict[tuple[int, int], list[int]] = defaultdict(list)
    for row in rows.tolist():
        members[int(events.group[row]), int(events.sequence[row])].append(row)
    arriving = _arriving(wire)
    waiting = in_flight = total = 0.0
    for key, own in members.items():
        last_arrival_ns = int(events.start_ns[own].max())
        for row in own:
            start_ns, rank = int(events.start_ns[row]), int(events.rank[row])
            end_ns = start_ns + int(events.dur_ns[row])
            if (key, rank) not in arriving or end_ns <= start_ns:
                continue
            begun_ns = min(last_arrival_ns, end_ns)
            busy = IntervalSet(arriving[key, rank]).within(np.array([begun_ns]), np.array([end_ns]))
            total += end_ns - start_ns
            waiting += begun_ns - start_ns
            in_flight += float(busy[0])
    if not total:
        return None
    return TimeOfCollectives(
        total_ns=round(total),
        waiting_for_ranks_pct=100 * waiting / total,
        on_the_way_pct=100 * in_flight / total,
        processors_pct=100 * (total - waiting - in_flight) / total,
    )


def _in_flight(wire: Wire) -> dict[RankPair, list[Interval]]:
    messages = wire.messages
    src, dst = wire.ranks_of(messages.src), wire.ranks_of(messages.dst)
    rows = np.flatnonzero(_timed(messages) & (src >= 0) & (dst >= 0) & (src != dst))
    found: dict[RankPair, list[Interval]] = defaultdict(list)
    for row in rows.tolist():
        found[int(src[row]), int(dst[row])].append(_interval(messages, row))
    return dict(found)


def _arriving(wire: Wire) -> dict[tuple[tuple[int, int], int], list[Interval]]:
    """Returns flight times of messages by collective and receiving rank."""
    messages = wire.messages
    dst = wire.ranks_of(messages.dst)
    rows = np.flatnonzero(_timed(messages) & (messages.sequence != NONE) & (dst >= 0))
    found: dict[tuple[tuple[int, int], int], list[Interval]] = defaultdict(list)
    for row in rows.tolist():
        key = int(messages.group[row]), int(messages.sequence[row])
        found[key, int(dst[row])].append(_interval(messages, row))
    return dict(found)


def _timed(messages: Messages) -> NDArray[np.bool_]:
    known = (messages.send_ns != NONE) & (messages.received_ns != NONE)
    return np.asarray(known & (messages.kind != MessageKind.OWN))


def _interval(messages: Messages, row: int) -> Interval:
    return int(messages.send_ns[row]), int(messages.received_ns[row])
