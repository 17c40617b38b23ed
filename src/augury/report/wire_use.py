"""When in a step its links are busy, and what the time of its collectives is spent on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from augury.core.enums import StepState, are_communication
from augury.core.graph.graph import NONE
from augury.core.time_intervals import Interval, IntervalSet
from augury.core.trace.trace import Trace
from augury.core.wire import MessageKind, Messages, Wire
from augury.report.wire import TimeOfCollectives

SLICES = 24
"""Of a step, for the eyes."""

Link = tuple[int, int]
"""Sender and receiver."""


def use_over_step(wire: Wire, trace: Trace) -> dict[Link, list[float]]:
    """Of every link, in each slice of the recorded steps, how much of the time something was on
    its way: in per cent, the mean over all steps."""
    steps = trace.steps
    timed = np.flatnonzero(steps.state == StepState.TIMED)
    busy = {link: IntervalSet(own) for link, own in _on_the_way(wire).items()}
    if not len(timed) or not busy:
        return {}
    share = np.linspace(0.0, 1.0, SLICES + 1)
    found: dict[Link, list[float]] = {}
    for link, own in busy.items():
        rows = timed[steps.rank[timed] == link[1]]
        length = (steps.end_ns - steps.start_ns)[rows]
        edges = steps.start_ns[rows][:, None] + np.rint(length[:, None] * share).astype(np.int64)
        spent = np.diff(own.until(edges.ravel()).reshape(edges.shape), axis=1)
        slices = np.maximum(1, np.diff(edges, axis=1))
        found[link] = [] if not len(rows) else (100 * spent / slices).mean(axis=0).tolist()
    return found


def time_of_collectives(wire: Wire, trace: Trace) -> TimeOfCollectives | None:
    """Summed over collectives and their members: until the last one has come; while something is
    on its way to the member; and the rest, in which processors are at work or missing."""
    events = trace.events
    is_communication = are_communication(events.kind)
    rows = np.flatnonzero(is_communication & (events.sequence != NONE) & (events.step >= 0))
    members: dict[tuple[int, int], list[int]] = defaultdict(list)
    for row in rows.tolist():
        members[int(events.group[row]), int(events.sequence[row])].append(row)
    arriving = _arriving(wire)
    waited = linked = total = 0.0
    for key, own in members.items():
        come_ns = int(events.start_ns[own].max())
        for row in own:
            start_ns, rank = int(events.start_ns[row]), int(events.rank[row])
            end_ns = start_ns + int(events.dur_ns[row])
            if (key, rank) not in arriving or end_ns <= start_ns:
                continue
            begun_ns = min(come_ns, end_ns)
            on_link = IntervalSet(arriving[key, rank]).within(
                np.array([begun_ns]), np.array([end_ns])
            )
            total += end_ns - start_ns
            waited += begun_ns - start_ns
            linked += float(on_link[0])
    if not total:
        return None
    return TimeOfCollectives(
        total_ns=round(total),
        waiting_for_ranks_pct=100 * waited / total,
        on_the_way_pct=100 * linked / total,
        processors_pct=100 * (total - waited - linked) / total,
    )


def _on_the_way(wire: Wire) -> dict[Link, list[Interval]]:
    messages = wire.messages
    src, dst = wire.ranks_of(messages.src), wire.ranks_of(messages.dst)
    rows = np.flatnonzero(_timed(messages) & (src >= 0) & (dst >= 0) & (src != dst))
    found: dict[Link, list[Interval]] = defaultdict(list)
    for row in rows.tolist():
        found[int(src[row]), int(dst[row])].append(_interval(messages, row))
    return dict(found)


def _arriving(wire: Wire) -> dict[tuple[tuple[int, int], int], list[Interval]]:
    """By collective and the rank to which messages go."""
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


_BLOCKS = " ▁▂▃▄▅▆▇█"


def sparkline(shares: Sequence[float]) -> str:
    """One character a slice, full at 100 per cent."""
    return "".join(_BLOCKS[round(min(100.0, max(0.0, share)) / 100 * 8)] for share in shares)
