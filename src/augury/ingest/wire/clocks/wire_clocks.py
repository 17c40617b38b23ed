"""Aligns the clocks of all hosts by messages: the lines that give messages the longest delays.

The residual of a clock is half of the round trip that the messages leave open, summed along the
shortest path to the reference.
"""

from __future__ import annotations

import numpy as np

from augury.core.ledger import Ledger, Severity
from augury.core.trace.trace import Clock
from augury.ingest.wire.clocks.clock_bounds import (
    CONTRADICTS,
    RECEIVED_BEFORE_SENT,
    Bounds,
    Delays,
    binding,
    height,
)
from augury.ingest.wire.clocks.clock_lp import (
    ClockLines,
    LpRows,
    Pairs,
    levels_of,
    rows_of,
    solve,
)

_TOLERANCE_US = 10.0
_IMPLAUSIBLE_US = 20_000.0
"""A clock that is being adjusted is no line; a larger contradiction means wrong records."""
_MAX_DROPPED_SHARE = 0.25
_EDGE_SHARE = 0.1
"""Single late messages decide at the edges of a recording: residuals leave out its first and last
tenth."""


def align_wire(bounds: Bounds, reference: int, ledger: Ledger) -> dict[int, Clock]:
    """Returns the clock of each process relative to the process ``reference``. Processes that
    messages do not connect to it are left out."""
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
    """Removes damaged rows: a single delay that is too short would determine the lines alone."""
    rows = rows_of({(0, 1): both}, 0)
    shortest = solve(rows).slack_us[0]
    if shortest >= -_TOLERANCE_US:
        return both
    is_wrong = solve(rows, is_forgiving=True).delay_us < -_TOLERANCE_US
    first = len(both[0])
    rest = both[0].of(~is_wrong[:first]), both[1].of(~is_wrong[first:])
    if is_wrong.mean() <= _MAX_DROPPED_SHARE and all(map(len, rest)):
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
    is_implausible = shortest < -_IMPLAUSIBLE_US
    ledger.note(
        "no-line-fits",
        "with any offset and drift of the clocks, bytes are received before they are sent",
        severity=Severity.ERROR if is_implausible else Severity.WARNING,
        remedy="do not trust times between these hosts; a clock may have been adjusted",
        example=f"by {-shortest / 1e3:.3f} ms",
    )
    return None if is_implausible else both


def _clocks(rows: LpRows, lines: ClockLines, pairs: Pairs) -> dict[int, Clock]:
    open_us = [_open_us(rows, lines, number) for number in range(len(pairs))]
    residual_us = _shortest_paths(dict(zip(pairs, open_us, strict=True)), rows.clocks[0])
    return {
        clock: Clock(
            offset_ns=int(rows.level_ns[i]) + round(float(lines.offset_us[i]) * 1e3),
            drift_ppm=float(lines.drift_ppm[i]),
            since_ns=int(rows.origin_ns[i]),
            residual_ns=round(residual_us[clock] * 1e3),
            source="wire",
        )
        for i, clock in enumerate(rows.clocks)
        if i > 0
    }


def _open_us(rows: LpRows, lines: ClockLines, pair: int) -> float:
    """Half of the round trip at the worse edge of the recording; in between it is smaller, because
    hulls are convex."""
    first, last = np.searchsorted(rows.pair, [pair, pair + 1])
    own = slice(int(first), int(last))
    at_s, delay_us = rows.common_s[own], lines.delay_us[own]
    is_there = rows.sender[own] < rows.receiver[own]
    begin, end = float(at_s.min()), float(at_s.max())
    edge = _EDGE_SHARE * (end - begin)
    round_trips_us = [
        sum(height(at_s[which], delay_us[which], where) for which in (is_there, ~is_there))
        for where in (begin + edge, end - edge)
    ]
    return max(*(trip / 2 for trip in round_trips_us), abs(float(lines.slack_us[pair])))


def _shortest_paths(open_us: dict[tuple[int, int], float], reference: int) -> dict[int, float]:
    """Returns the length of the shortest path from the reference to each clock."""
    from scipy.sparse import csr_array  # noqa: PLC0415
    from scipy.sparse.csgraph import dijkstra  # noqa: PLC0415

    clocks = sorted({clock for pair in open_us for clock in pair})
    index = {clock: i for i, clock in enumerate(clocks)}
    first, second = np.array([(index[a], index[b]) for a, b in open_us]).T
    edges = csr_array((list(open_us.values()), (first, second)), shape=(len(clocks), len(clocks)))
    lengths = dijkstra(edges, directed=False, indices=index[reference])
    return dict(zip(clocks, lengths.tolist(), strict=True))
