"""Finds the messages between two ranks that belong to each collective of a Trace.

Each collective sends messages of known lengths in a known order, within a known time; several
collectives share a connection. A beam search over the messages looks for the assignment that leaves
the fewest unexplained. It is exact where few collectives run at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from augury.core.columns import I8
from augury.core.enums import OpKind, are_communication
from augury.core.gloo_segments import ELEMENT_SIZES
from augury.core.graph.graph import NONE
from augury.core.trace.trace import Trace
from augury.core.wire import Algorithm
from augury.ingest.wire.attribution.gloo_messages import all_gather_lengths, all_reduce_lengths

SLACK_NS = 2_000_000
"""Distance that a message may lie outside of its collective: profiler and socket read the clock in
different ways, and clocks of hosts are aligned only so well."""
MAX_SIZE_BYTES = 1 << 36
"""A larger size is not believed."""
_RING_SUMS = (OpKind.ALL_REDUCE, OpKind.REDUCE_SCATTER)
"""Gloo does a reduce-scatter as an all-reduce."""
_WITHOUT_PAYLOAD = (OpKind.BARRIER,)

BEAM = 24
MAX_OPEN = 32
"""Collectives at once; of more only the newest are considered."""
_COST_UNEXPLAINED = 4.0
"""No collective expects the message."""
_COST_MISSING = 1.0
"""An expected message is missing."""
_COST_UNSURE = 0.5
"""Only the time of the message fits."""
_COST_UNTIMELY = 0.1
"""The message lies outside of the collective's time."""
_COST_UNEVEN = 0.01
"""The collective has sent more or less than its time suggests."""


@dataclass(slots=True)
class WireCollective:
    """A collective, or a send with its receive, as it is looked for on the wire."""

    group: int
    sequence: int
    kind: OpKind
    members: Sequence[int]
    size_bytes: int = 0
    start_ns: dict[int, int] = field(default_factory=dict)
    end_ns: dict[int, int] = field(default_factory=dict)
    sender: int = NONE
    receiver: int = NONE
    element_bytes: int = 0
    """Element size of an all-reduce whose lengths were found; 0 before."""
    algorithm: Algorithm = Algorithm.UNKNOWN
    """Algorithm whose lengths were found."""

    @property
    def is_point_to_point(self) -> bool:
        return self.kind == OpKind.SEND


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Part of a collective that one rank sends to another; ``lengths`` are None if unknown."""

    start_ns: int
    end_ns: int
    lengths: tuple[int, ...] | None


def collectives_in(trace: Trace) -> list[WireCollective]:
    """Returns the numbered collectives of a Trace that have payload."""
    events = trace.events
    is_communication = are_communication(events.kind)
    rows = np.flatnonzero(is_communication & (events.group != NONE) & (events.sequence != NONE))
    found: dict[tuple[int, int], WireCollective] = {}
    for row in rows.tolist():
        group, sequence = int(events.group[row]), int(events.sequence[row])
        kind, rank = OpKind(int(events.kind[row])), int(events.rank[row])
        if kind in _WITHOUT_PAYLOAD:
            continue
        common_kind = OpKind.SEND if kind == OpKind.RECV else kind
        one = found.setdefault(
            (group, sequence), WireCollective(group, sequence, common_kind, trace.groups[group])
        )
        one.size_bytes = max(one.size_bytes, int(events.size_bytes[row]))
        start_ns = int(events.start_ns[row])
        if one.is_point_to_point:
            # Gloo may send at once when it is called.
            start_ns = min(start_ns, int(events.arrival_ns[row]))
            if kind == OpKind.SEND:
                one.sender = rank
            else:
                one.receiver = rank
        one.start_ns[rank] = min(start_ns, one.start_ns.get(rank, start_ns))
        end_ns = int(events.start_ns[row] + events.dur_ns[row])
        one.end_ns[rank] = max(end_ns, one.end_ns.get(rank, end_ns))
    return list(found.values())


def spans_between(
    collectives: Sequence[WireCollective], src: int, dst: int, times_ns: I8, lengths: I8
) -> tuple[list[int], list[Span]]:
    """Returns the indices of the collectives in which ``src`` sends to ``dst``, and their spans in
    order of starts. ``times_ns`` and ``lengths`` are those of the messages to explain."""
    found: list[tuple[Span, int]] = []
    for number, one in enumerate(collectives):
        if not {src, dst} <= set(one.members) or not (src in one.start_ns or dst in one.start_ns):
            continue
        if one.is_point_to_point and (one.sender, one.receiver) != (src, dst):
            continue
        begin_ns = one.start_ns.get(src, one.start_ns.get(dst, 0))
        end_ns = max(one.end_ns.get(rank, begin_ns) for rank in (src, dst))
        first, last = np.searchsorted(times_ns, [begin_ns - SLACK_NS, end_ns + SLACK_NS])
        expected = _expected_lengths(one, src, dst, set(lengths[first:last].tolist()))
        if expected is None or expected:
            found.append((Span(start_ns=begin_ns, end_ns=end_ns, lengths=expected), number))
    found.sort(key=lambda entry: entry[0].start_ns)
    return [number for _, number in found], [span for span, _ in found]


def _expected_lengths(
    one: WireCollective, src: int, dst: int, seen: set[int]
) -> tuple[int, ...] | None:
    """Lengths in order; empty if ``src`` sends nothing to ``dst``, None if lengths are unknown."""
    if one.size_bytes > MAX_SIZE_BYTES:
        return None
    members = list(one.members)
    size, place = len(members), members.index(src)
    if one.kind in _RING_SUMS and one.size_bytes > 0:
        if members.index(dst) != (place - 1) % size:
            return ()
        for element_bytes in [one.element_bytes] if one.element_bytes else ELEMENT_SIZES:
            around = all_reduce_lengths(one.size_bytes, size, place, element_bytes).tolist()
            if around and seen.issuperset(around):
                one.element_bytes, one.algorithm = element_bytes, Algorithm.RING
                return tuple(around)
        return None
    if one.kind == OpKind.ALL_GATHER and one.size_bytes > 0:
        if members.index(dst) != (place + 1) % size:
            return ()
        passed_on = all_gather_lengths(one.size_bytes // size, size).tolist()
        if not passed_on or not seen.issuperset(passed_on):
            return None
        one.algorithm = Algorithm.RING
        return tuple(passed_on)
    if one.is_point_to_point and one.size_bytes in seen:
        one.algorithm = Algorithm.DIRECT
        return (one.size_bytes,)
    return None


_Open = tuple[tuple[int, int], ...]
"""Spans that may send more, each with the number of its messages so far."""
_Trail = tuple["_Trail | None", int]
"""Spans of the messages so far, in reverse order."""


def assign(
    times_ns: Sequence[int],
    lengths: Sequence[int],
    spans: Sequence[Span],
    *,
    slack_ns: int = 0,
) -> list[int]:
    """Returns the span of each message, or NONE. Messages are in order of time, spans in order of
    their starts. A message may lie ``slack_ns`` outside of its span."""
    states: dict[_Open, tuple[float, _Trail | None]] = {(): (0.0, None)}
    following = 0
    for now_ns, length in zip(times_ns, lengths, strict=True):
        begun: list[tuple[int, int]] = []
        while following < len(spans) and spans[following].start_ns - slack_ns <= now_ns:
            begun.append((following, 0))
            following += 1
        grown: dict[_Open, tuple[float, _Trail | None]] = {}
        for opened, (cost, trail) in states.items():
            still, lost = _still_open((*opened, *begun), spans, now_ns - slack_ns)
            for after, more, span in _choices(still, spans, now_ns, length, slack_ns):
                total = cost + lost + more
                known = grown.get(after)
                if known is None or total < known[0]:
                    grown[after] = (total, (trail, span))
        states = _best(grown)
    if not times_ns:
        return []
    ended = min(states.items(), key=lambda item: item[1][0] + _still_open(item[0], spans, None)[1])
    return _in_order(ended[1][1])


def _still_open(opened: _Open, spans: Sequence[Span], since_ns: int | None) -> tuple[_Open, float]:
    """Spans that had not ended by ``since_ns``, and the cost of messages that the others lack."""
    still: list[tuple[int, int]] = []
    lost = 0.0
    for span, seen in opened:
        if since_ns is not None and spans[span].end_ns >= since_ns:
            still.append((span, seen))
        elif (expected := spans[span].lengths) is not None:
            lost += _COST_MISSING * (len(expected) - seen)
    return tuple(still[-MAX_OPEN:]), lost


def _choices(
    opened: _Open, spans: Sequence[Span], now_ns: int, length: int, slack_ns: int
) -> list[tuple[_Open, float, int]]:
    """Open spans afterwards, cost, and span of the message, for each span that fits."""
    found: list[tuple[_Open, float, int]] = []
    for place, (number, seen) in enumerate(opened):
        span = spans[number]
        expected = span.lengths
        if expected is None:
            cost = _COST_UNSURE + _untimely(span, now_ns, slack_ns)
            found.append((opened, cost, number))
        elif expected[seen] == length:
            rest = ((number, seen + 1),) if seen + 1 < len(expected) else ()
            after = opened[:place] + rest + opened[place + 1 :]
            cost = _untimely(span, now_ns, slack_ns) + _uneven(span, seen, len(expected), now_ns)
            found.append((after, cost, number))
    if not found:
        found.append((opened, _COST_UNEXPLAINED, NONE))
    return found


def _untimely(span: Span, now_ns: int, slack_ns: int) -> float:
    outside_ns = max(span.start_ns - now_ns, now_ns - span.end_ns, 0)
    return _COST_UNTIMELY * outside_ns / slack_ns if outside_ns else 0.0


def _uneven(span: Span, seen: int, count: int, now_ns: int) -> float:
    passed = (now_ns - span.start_ns) / max(1, span.end_ns - span.start_ns)
    return _COST_UNEVEN * abs(seen / count - min(1.0, max(0.0, passed)))


def _best(
    states: dict[_Open, tuple[float, _Trail | None]],
) -> dict[_Open, tuple[float, _Trail | None]]:
    if len(states) <= BEAM:
        return states
    return dict(sorted(states.items(), key=lambda item: item[1][0])[:BEAM])


def _in_order(trail: _Trail | None) -> list[int]:
    found: list[int] = []
    while trail is not None:
        trail, span = trail
        found.append(span)
    return found[::-1]
