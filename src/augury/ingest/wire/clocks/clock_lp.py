"""Linear program for clocks from messages: offset and drift of all clocks at once.

Each row has the earliest sending time of a byte on one clock and its latest receipt on another. On
common time the delay is at least the slack of the two clocks. The sum of all slacks is maximised,
which makes the shortest delays of both directions equal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from augury.core.columns import I8
from augury.ingest.wire.clocks.clock_bounds import F8, Delays

Pairs = Mapping[tuple[int, int], tuple[Delays, Delays]]
"""Delays from the first to the second of two clocks, and back."""

_MAX_DRIFT_PPM = 2_000.0
_MIN_SPAN_S = 0.5
"""Over a shorter time, drift is within the noise and does not matter."""
_STEADY = 0.02
"""Clocks hardly drift: a drift is accepted if slacks gain at least this share of what it moves."""
_PER_WRONG_ROW = 8
"""At most one row in so many may be damaged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LpRows:
    """Rows of the program in numbers small enough for floats: times since the first of each clock,
    delays after each clock was moved by its level."""

    clocks: list[int]
    """The reference is the first."""
    origin_ns: I8
    level_ns: I8
    pair: NDArray[np.intp]
    """Index of the pair of clocks; sender and receiver are indices into ``clocks``."""
    sender: NDArray[np.intp]
    receiver: NDArray[np.intp]
    sent_s: F8
    received_s: F8
    delay_us: F8
    common_s: F8
    """Sending time by the levels alone."""

    @property
    def span_s(self) -> float:
        return float(self.received_s.max()) if len(self.pair) else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockLines:
    """Solution of the program."""

    offset_us: F8
    """Offset of each clock beyond its level."""
    drift_ppm: F8
    slack_us: F8
    """Shortest delay of each pair; negative where no lines explain its rows."""
    delay_us: F8
    """Delay of each row on common time."""


def levels_of(pairs: Pairs, reference: int) -> dict[int, int]:
    """Returns the approximate lag in nanoseconds of each clock that pairs connect to the
    reference."""
    ahead: dict[int, list[tuple[int, int]]] = {}
    for (a, b), (there, back) in pairs.items():
        by = (_middle(back) - _middle(there)) // 2
        ahead.setdefault(a, []).append((b, by))
        ahead.setdefault(b, []).append((a, -by))
    levels = {reference: 0}
    waiting = [reference]
    for a in waiting:
        for b, by in ahead.get(a, ()):
            if b not in levels:
                levels[b] = levels[a] + by
                waiting.append(b)
    return levels


def rows_of(pairs: Pairs, reference: int) -> LpRows:
    """All pairs must be connected to the reference."""
    levels = levels_of(pairs, reference)
    clocks = list(levels)
    index = {clock: i for i, clock in enumerate(clocks)}
    directed = [
        (number, index[sender], index[receiver], delays)
        for number, (pair, both) in enumerate(pairs.items())
        for (sender, receiver), delays in zip((pair, pair[::-1]), both, strict=True)
    ]
    lengths = [len(delays) for *_, delays in directed]
    pair, sender, receiver = (
        np.repeat(np.array(column, dtype=np.intp), lengths)
        for column in list(zip(*directed, strict=True))[:3]
    )
    sent_ns = np.concatenate([delays.sent_ns for *_, delays in directed])
    received_ns = np.concatenate([delays.received_ns for *_, delays in directed])
    origin_ns = np.full(len(clocks), np.iinfo(np.int64).max)
    np.minimum.at(origin_ns, sender, sent_ns)
    np.minimum.at(origin_ns, receiver, received_ns)
    level_ns = np.array([levels[clock] for clock in clocks], dtype=np.int64)
    sent_s = (sent_ns - origin_ns[sender]) / 1e9
    first_ns = origin_ns + level_ns
    return LpRows(
        clocks=clocks,
        origin_ns=origin_ns,
        level_ns=level_ns,
        pair=pair,
        sender=sender,
        receiver=receiver,
        sent_s=sent_s,
        received_s=(received_ns - origin_ns[receiver]) / 1e9,
        delay_us=(received_ns - sent_ns + level_ns[receiver] - level_ns[sender]) / 1e3,
        common_s=sent_s + (first_ns - first_ns[0])[sender] / 1e9,
    )


def solve(rows: LpRows, *, is_forgiving: bool = False) -> ClockLines:
    """If forgiving, as many rows of each direction as may be damaged may violate their bound; the
    lines are those of the other rows."""
    from scipy.optimize import linprog  # noqa: PLC0415
    from scipy.sparse import coo_array, hstack, identity  # noqa: PLC0415

    num_rows, num_clocks = len(rows.pair), len(rows.clocks)
    num_pairs = int(rows.pair.max()) + 1
    ones = np.ones(num_rows)
    # Unknowns: offsets, drifts upwards, drifts downwards, slacks.
    terms = (
        (rows.receiver, -ones),
        (rows.sender, ones),
        (num_clocks + rows.receiver, -rows.received_s),
        (num_clocks + rows.sender, rows.sent_s),
        (2 * num_clocks + rows.receiver, rows.received_s),
        (2 * num_clocks + rows.sender, -rows.sent_s),
        (3 * num_clocks + rows.pair, ones),
    )
    matrix = coo_array(
        (
            np.concatenate([factor for _, factor in terms]),
            (np.tile(np.arange(num_rows), len(terms)), np.concatenate([c for c, _ in terms])),
        ),
        shape=(num_rows, 3 * num_clocks + num_pairs),
    )
    max_drift_ppm = _MAX_DRIFT_PPM if rows.span_s >= _MIN_SPAN_S else 0.0
    limits = np.zeros((3 * num_clocks + num_pairs, 2))
    limits[1:num_clocks] = limits[3 * num_clocks :] = (-np.inf, np.inf)
    for first in (num_clocks, 2 * num_clocks):
        limits[first + 1 : first + num_clocks, 1] = max_drift_ppm
    cost = np.zeros(len(limits))
    cost[num_clocks : 3 * num_clocks] = _STEADY * rows.span_s
    cost[3 * num_clocks :] = -1.0
    if is_forgiving:
        matrix = hstack([matrix, -identity(num_rows)])
        limits = np.vstack([limits, np.tile((0.0, np.inf), (num_rows, 1))])
        cost = np.append(cost, _violation_price(rows))
    found = linprog(cost, A_ub=matrix.tocsr(), b_ub=rows.delay_us, bounds=limits, method="highs")
    best = found.x if found.x is not None else np.zeros(len(cost))
    offset, up, down = (best[i * num_clocks : (i + 1) * num_clocks] for i in range(3))
    drift = up - down
    delay = (
        rows.delay_us
        + (offset[rows.receiver] + drift[rows.receiver] * rows.received_s)
        - (offset[rows.sender] + drift[rows.sender] * rows.sent_s)
    )
    slack = np.full(num_pairs, np.inf)
    np.minimum.at(slack, rows.pair, delay)
    return ClockLines(offset_us=offset, drift_ppm=drift, slack_us=slack, delay_us=delay)


def _violation_price(rows: LpRows) -> F8:
    """A slack is worth 1, half of it in each direction. At this price per violated row a bound
    holds only if more rows demand it than may be damaged."""
    direction = rows.pair * 2 + (rows.sender > rows.receiver)
    count = np.bincount(direction)
    price: F8 = 0.5 / (1 + count // _PER_WRONG_ROW)
    return price[direction]


def _middle(delays: Delays) -> int:
    return int(np.median(delays.received_ns - delays.sent_ns))
