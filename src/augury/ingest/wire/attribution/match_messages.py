"""Which messages from one rank to another belong to which of the collectives that run at once.

Each collective sends messages of known lengths in a known order, within a known time; several
share the connection. The assignment is sought that leaves the least unexplained: a beam search,
message by message, which is exact where few collectives run at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from augury.core.graph.graph import NONE

BEAM = 24
MAX_OPEN = 32
"""Collectives at once; of more only the newest are looked at."""
_UNEXPLAINED, _MISSING, _UNSURE = 4.0, 1.0, 0.5
"""Costs: a message that nothing expects; one that did not come; one that only its time explains."""
_UNTIMELY, _UNEVEN = 0.1, 0.01
"""Of several that would do: one that has not begun, or has ended; one that is further on than its
time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A collective as one rank sends its part to another; ``lengths`` None: whatever they are."""

    start_ns: int
    end_ns: int
    lengths: tuple[int, ...] | None


_Open = tuple[tuple[int, int], ...]
"""Spans that may send more, each with how many of its messages were seen."""
_Trail = tuple["_Trail | None", int]
"""What each message was given to, backwards."""


def assign(
    times_ns: Sequence[int],
    lengths: Sequence[int],
    spans: Sequence[Span],
    *,
    slack_ns: int = 0,
) -> list[int]:
    """For each message its span, or NONE. Messages are in order of time, spans in order of their
    start; ``slack_ns``: how far a message may lie outside of its span."""
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
    return _followed(ended[1][1])


def _still_open(opened: _Open, spans: Sequence[Span], since_ns: int | None) -> tuple[_Open, float]:
    """Without those that had ended by then, and what these lack."""
    still: list[tuple[int, int]] = []
    lost = 0.0
    for span, seen in opened:
        if since_ns is not None and spans[span].end_ns >= since_ns:
            still.append((span, seen))
        elif (expected := spans[span].lengths) is not None:
            lost += _MISSING * (len(expected) - seen)
    return tuple(still[-MAX_OPEN:]), lost


def _choices(
    opened: _Open, spans: Sequence[Span], now_ns: int, length: int, slack_ns: int
) -> list[tuple[_Open, float, int]]:
    """What is open afterwards, what it costs, and which span the message is of."""
    found: list[tuple[_Open, float, int]] = []
    for place, (number, seen) in enumerate(opened):
        span = spans[number]
        expected = span.lengths
        if expected is None:
            cost = _UNSURE + _untimely(span, now_ns, slack_ns)
            found.append((opened, cost, number))
        elif expected[seen] == length:
            rest = ((number, seen + 1),) if seen + 1 < len(expected) else ()
            after = opened[:place] + rest + opened[place + 1 :]
            cost = _untimely(span, now_ns, slack_ns) + _uneven(span, seen, len(expected), now_ns)
            found.append((after, cost, number))
    if not found:
        found.append((opened, _UNEXPLAINED, NONE))
    return found


def _untimely(span: Span, now_ns: int, slack_ns: int) -> float:
    outside_ns = max(span.start_ns - now_ns, now_ns - span.end_ns, 0)
    return _UNTIMELY * outside_ns / slack_ns if outside_ns else 0.0


def _uneven(span: Span, seen: int, count: int, now_ns: int) -> float:
    passed = (now_ns - span.start_ns) / max(1, span.end_ns - span.start_ns)
    return _UNEVEN * abs(seen / count - min(1.0, max(0.0, passed)))


def _best(
    states: dict[_Open, tuple[float, _Trail | None]],
) -> dict[_Open, tuple[float, _Trail | None]]:
    if len(states) <= BEAM:
        return states
    return dict(sorted(states.items(), key=lambda item: item[1][0])[:BEAM])


def _followed(trail: _Trail | None) -> list[int]:
    found: list[int] = []
    while trail is not None:
        trail, span = trail
        found.append(span)
    return found[::-1]
