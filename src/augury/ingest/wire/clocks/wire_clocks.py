"""Clocks from the wire: for all hosts at once, the lines that leave messages the most time.

How far off may they be? By half of what the two directions between two hosts leave open, added
up on the way to the reference. That is what a clock states as its residual.
"""

from __future__ import annotations

import heapq

import numpy as np

from augury.core.ledger import Ledger, Severity
from augury.core.trace.trace import Clock
from augury.ingest.wire.clocks.clock_bounds import (
    CONTRADICTS,
    RECEIVED_BEFORE_SENT,
    Bounds,
    Delays,
    binding,
)
from augury.ingest.wire.clocks.clock_lp import Lines, Pairs, Rows, levels_of, rows_of, solve
from augury.ingest.wire.clocks.lower_hull import height

_TOLERANCE_US = 10.0
_IMPLAUSIBLE_US = 20_000.0
"""A clock that is being set right is no line; but what contradicts itself by more than that was
not sent and received as it says."""
_MOST_DROPPED = 0.25
_WITHIN = 0.1
"""At the ends of a recording single late messages decide: how far off clocks may be is looked at
between its first and its last tenth."""


def align_wire(bounds: Bounds, reference: int, ledger: Ledger) -> dict[int, Clock]:
    """How to lead the clock of each process to that of the process ``reference``. Those of whose
    clocks the wire tells nothing are left out."""
    own = bounds.clock_of[reference]
    pairs = _pairs(bounds, ledger)
    joined = levels_of(pairs, own)
    pairs = {pair: both for pair, both in pairs.items() if pair[0] in joined}
    clocks = {own: Clock(source="host")}
    if pairs:
        rows = rows_of(pairs, own)
        clocks |= _clocks(rows, solve(rows), pairs)
    found = {p: clocks[clock] for p, clock in enumerate(bounds.clock_of) if clock in clocks}
    return found | {reference: Clock()}


def _pairs(bounds: Bounds, ledger: Ledger) -> Pairs:
    found: dict[tuple[int, int], tuple[Delays, Delays]] = {}
    for a, b in bounds.delays:
        if a < b and (b, a) in bounds.delays:
            both = _without_damage((bounds.delays[a, b], bounds.delays[b, a]), ledger)
            if both is not None:
                found[a, b] = binding(both[0]), binding(both[1])
    return found


def _without_damage(both: tuple[Delays, Delays], ledger: Ledger) -> tuple[Delays, Delays] | None:
    """A row that is wrong and makes a delay too short would decide alone where the line lies."""
    rows = rows_of({(0, 1): both}, 0)
    shortest = solve(rows).slack_us[0]
    if shortest >= -_TOLERANCE_US:
        return both
    is_wrong = solve(rows, is_forgiving=True).delay_us < -_TOLERANCE_US
    first = len(both[0])
    rest = both[0].of(~is_wrong[:first]), both[1].of(~is_wrong[first:])
    if is_wrong.mean() <= _MOST_DROPPED and all(map(len, rest)):
        ledger.note(
            RECEIVED_BEFORE_SENT,
            CONTRADICTS,
            count=int(is_wrong.sum()),
            example=f"by {-shortest / 1e3:.3f} ms",
        )
        both = rest
        shortest = solve(rows_of({(0, 1): both}, 0)).slack_us[0]
    if shortest >= -_TOLERANCE_US:
        return both
    is_hopeless = shortest < -_IMPLAUSIBLE_US
    ledger.note(
        "no-line-fits",
        "whatever line a clock may be, data is received before it was sent",
        severity=Severity.ERROR if is_hopeless else Severity.WARNING,
        remedy="do not trust times between these hosts: a clock may have been set meanwhile",
        example=f"by {-shortest / 1e3:.3f} ms",
    )
    return None if is_hopeless else both


def _clocks(rows: Rows, lines: Lines, pairs: Pairs) -> dict[int, Clock]:
    open_us = [_open_us(rows, lines, number) for number in range(len(pairs))]
    far_us = _ways(dict(zip(pairs, open_us, strict=True)), rows.clocks[0])
    return {
        clock: Clock(
            offset_ns=int(rows.level_ns[i]) + round(float(lines.offset_us[i]) * 1e3),
            drift_ppm=float(lines.drift_ppm[i]),
            since_ns=int(rows.origin_ns[i]),
            residual_ns=round(far_us[clock] * 1e3),
            source="wire",
        )
        for i, clock in enumerate(rows.clocks)
        if i > 0
    }


def _open_us(rows: Rows, lines: Lines, pair: int) -> float:
    """Half the way there and back as it is seen at the worse end of the recording; what lies
    between is less, for it is convex."""
    first, last = np.searchsorted(rows.pair, [pair, pair + 1])
    own = slice(int(first), int(last))
    at_s, delay_us = rows.common_s[own], lines.delay_us[own]
    is_there = rows.sender[own] < rows.receiver[own]
    begin, end = float(at_s.min()), float(at_s.max())
    edge = _WITHIN * (end - begin)
    ways = [
        sum(height(at_s[which], delay_us[which], where) for which in (is_there, ~is_there))
        for where in (begin + edge, end - edge)
    ]
    return max(*(way / 2 for way in ways), abs(float(lines.slack_us[pair])))


def _ways(open_us: dict[tuple[int, int], float], reference: int) -> dict[int, float]:
    """The shortest way to each clock."""
    steps: dict[int, list[tuple[int, float]]] = {}
    for (a, b), length in open_us.items():
        steps.setdefault(a, []).append((b, length))
        steps.setdefault(b, []).append((a, length))
    done: dict[int, float] = {}
    waiting = [(0.0, reference)]
    while waiting:
        so_far, clock = heapq.heappop(waiting)
        if clock in done:
            continue
        done[clock] = so_far
        for other, length in steps.get(clock, ()):
            heapq.heappush(waiting, (so_far + length, other))
    return done
