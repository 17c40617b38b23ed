"""Finds the offset of the clocks of two ranks at which most of their collectives end together.

Recordings of two ranks may start some collectives apart, and either may lack some in the middle, so
the n-th collective of one rank need not be the n-th of another. A collective ends on all ranks at
nearly the same time: the right offset of two clocks is the one at which most ends meet. Starts are
not compared: a rank that arrives early waits in the collective.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from augury.core.columns import I8
from augury.core.graph.graph import NONE
from augury.ingest.clocks.clock_fits import robust_line
from augury.ingest.collectives.matching.collective_sequence import (
    F8,
    ClockLine,
    CollectiveSequence,
    agreeing,
    rows_of_shared_keys,
    to_neighbour,
)
from augury.ingest.collectives.matching.pairs_in_time import (
    REACH_NS,
    candidates,
    most_pairs,
    pairs_in_order,
)

SAME_CLOCK_NS = 5_000_000
"""Ranks whose ends meet within this time have one clock, or synchronized clocks."""
MAX_OFFSET_NS = 60_000_000_000
"""Clocks of two hosts never differ by a minute; beyond, the traces are of different jobs."""
MIN_MEETING = 0.4
"""Smallest share of the collectives that both ranks recorded whose ends must meet."""
_NEAR_NS = 50_000.0
"""Usual distance of the ends of one collective."""
_BIN_NS = 100_000
_FINE_BIN_NS = 20_000
_SPARSE_NS = 1_500_000
"""Collectives that follow each other no closer than this cannot be confused."""
_MIN_SPREAD_NS = 3_000.0
_MAX_DIFFERENCES = 400_000
_MAX_FITTED = 120
"""Number of pairs to which a clock is fitted."""
_MAX_PEAKS = 24
_MAX_SAMPLE = 256
_MAX_SHARP = 3
_MAX_ROUNDS = 6
_MIN_TOGETHER = 0.9
"""Share of the collectives that must have run at the same time on both ranks."""
_CERTAIN = 0.95
"""Share of the collectives whose ends meet at the right offset alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alignment:
    """Pairs of equal collectives of two ranks, and the clock at which their ends meet."""

    own: I8
    other: I8
    """Rows of the paired collectives."""
    line: ClockLine
    apart_ns: F8
    """Distance of the ends of each pair on one clock."""
    same_step: float
    """Share of the pairs whose steps have the same number on both ranks."""

    @property
    def spread_ns(self) -> float:
        """Median distance of the ends."""
        return float(np.median(np.abs(self.apart_ns)))

    def votes(self, usual_ns: float = _NEAR_NS) -> float:
        """Number of pairs; those whose ends are farther apart than usual count less."""
        return float((1 / (1 + (self.apart_ns / usual_ns) ** 2)).sum())


def align_sequences(
    own: CollectiveSequence, other: CollectiveSequence, labels: dict[int, int] | None = None
) -> Alignment | str:
    """Returns the best alignment, or the reason why there is none. ``labels`` maps names of
    communicators of ``own`` to those of ``other`` where this is known."""
    differences = _number_differences(own, other)
    if len(differences):
        line = ClockLine(offset_ns=float(np.median(differences)))
        found = _aligned_at(own, other, line, labels, by_key=True)
        if found is not None and _is_plausible(found, own, other):
            return _completed(own, other, found, labels, by_key=True)
    same_clock = _aligned_at(own, other, ClockLine(offset_ns=0.0), labels)
    if same_clock is not None and same_clock.votes() >= 0.5 * min(len(own), len(other)):
        return _completed(own, other, _sharpest(own, other, same_clock, labels), labels)
    in_order = _in_order(own, other)
    if in_order is not None and abs(in_order.line.offset_ns) <= SAME_CLOCK_NS:
        return in_order
    tried = [same_clock] if same_clock is not None else []
    for peak_ns in _peaks(own, other):
        line = ClockLine(offset_ns=peak_ns)
        found = _aligned_at(own, other, line, labels, within_ns=2 * _BIN_NS)
        if found is None:
            continue
        tried.append(found)
        if found.votes() >= _CERTAIN * min(len(own), len(other)):
            break
    tried = [each for each in tried if _is_plausible(each, own, other)]
    if not tried:
        return in_order or _refusal(own, other)
    return _completed(own, other, _sharpest(own, other, _best(tried), labels), labels)


def _sharpest(
    own: CollectiveSequence,
    other: CollectiveSequence,
    found: Alignment,
    labels: dict[int, int] | None,
) -> Alignment:
    """Where collectives follow each other closely, several offsets nearby pair most of them. The
    ends meet best at the right one."""
    near_ns = float(np.median(to_neighbour(other))) if len(other) > 1 else np.inf
    if near_ns > _SPARSE_NS:
        return found
    tried = [found]
    for more_ns in _sharp_offsets(own, other, found.line):
        line = replace(found.line, offset_ns=found.line.offset_ns + more_ns)
        each = _aligned_at(own, other, line, labels, within_ns=2 * _FINE_BIN_NS)
        if each is not None and _is_plausible(each, own, other):
            tried.append(each)
    most = max(each.votes() for each in tried)
    usual_ns = min(each.spread_ns for each in tried if each.votes() >= 0.5 * most)
    return max(tried, key=lambda each: each.votes(max(_MIN_SPREAD_NS, usual_ns)))


def _sharp_offsets(
    own: CollectiveSequence, other: CollectiveSequence, line: ClockLine
) -> list[float]:
    """Offsets in addition to a line at which the ends of a sample meet best."""
    sample = np.arange(0, len(own), -(-len(own) // _MAX_SAMPLE))
    moved = replace(
        own.at(sample),
        start_ns=line.to_other(own.start_ns[sample]),
        end_ns=line.to_other(own.end_ns[sample]),
    )
    scored: list[tuple[float, F8]] = []
    for more_ns in _peaks(moved, other, around_ns=0.0):
        apart = _to_nearest(moved.end_ns + round(more_ns), other.end_ns)
        close = np.abs(apart) <= 2 * _FINE_BIN_NS
        if close.any():
            scored.append((more_ns, apart - np.median(apart[close])))
    if not scored:
        return []
    usual_ns = max(_MIN_SPREAD_NS, min(float(np.median(np.abs(left))) for _, left in scored))
    votes = [float((1 / (1 + (left / usual_ns) ** 2)).sum()) for _, left in scored]
    best = sorted(range(len(scored)), key=lambda i: -votes[i])[:_MAX_SHARP]
    return [scored[i][0] for i in best]


def _to_nearest(times_ns: I8, other_ns: I8) -> F8:
    """Signed distance of each time to the nearest of the others, which are in order."""
    place = np.clip(np.searchsorted(other_ns, times_ns), 1, max(1, len(other_ns) - 1))
    before = (other_ns[place - 1] - times_ns).astype(np.float64)
    after = (other_ns[np.minimum(place, len(other_ns) - 1)] - times_ns).astype(np.float64)
    return np.where(np.abs(before) <= np.abs(after), before, after)


def _completed(
    own: CollectiveSequence,
    other: CollectiveSequence,
    found: Alignment,
    labels: dict[int, int] | None,
    *,
    by_key: bool = False,
) -> Alignment:
    i, j = most_pairs(own, other, found.line, labels, found.own, found.other, by_key=by_key)
    if len(i) < len(own) == len(other) and (i == j).all():
        # Every pair is the n-th of both ranks: so are those whose ends are far apart by chance.
        return _in_order(own, other) or _alignment(own, other, found.line, i, j)
    return _alignment(own, other, found.line, i, j)


def _best(tried: list[Alignment]) -> Alignment:
    """Steps look alike: of offsets at which about as many ends meet, one clock for both ranks is
    preferred, then equal numbers of steps."""
    most = max(each.votes() for each in tried)
    near = [
        each
        for each in tried
        if each.votes() >= 0.5 * most and abs(each.line.offset_ns) <= SAME_CLOCK_NS
    ]
    if near:
        return max(near, key=lambda each: each.votes())
    similar = [each for each in tried if each.votes() >= 0.8 * most]
    return max(similar, key=lambda each: (each.same_step > 0.5, each.votes()))


def _is_plausible(found: Alignment, own: CollectiveSequence, other: CollectiveSequence) -> bool:
    common_ns = found.line.to_other(own.end_ns)
    first = max(common_ns.min(), other.end_ns.min()) - REACH_NS
    last = min(common_ns.max(), other.end_ns.max()) + REACH_NS
    shared = min(
        int(((common_ns >= first) & (common_ns <= last)).sum()),
        int(((other.end_ns >= first) & (other.end_ns <= last)).sum()),
    )
    # Ends meet by chance as well, the more easily the closer they follow each other.
    usual_ns = (
        max(_NEAR_NS, 0.05 * float(np.median(to_neighbour(other)))) if len(other) > 1 else np.inf
    )
    least = min(2, len(own), len(other))
    return len(found.own) >= least and found.votes(usual_ns) >= MIN_MEETING * shared


def _in_order(own: CollectiveSequence, other: CollectiveSequence) -> Alignment | None:
    """Pairs the n-th collectives of both ranks if they are the same ones throughout and can have
    run together: none ended before the other rank started it. On busy hosts, where a thread learns
    of the end when it gets a core, ends alone do not show this."""
    rows = np.arange(len(own))
    if len(own) != len(other) or not agreeing(own, other, rows, rows).all():
        return None
    line = _fitted(own.end_ns, other.end_ns)
    together = line.to_other(own.start_ns) <= other.end_ns
    together &= other.start_ns <= line.to_other(own.end_ns)
    if together.mean() < _MIN_TOGETHER or abs(line.offset_ns) > MAX_OFFSET_NS:
        return None
    return _alignment(own, other, line, rows, rows)


def _refusal(own: CollectiveSequence, other: CollectiveSequence) -> str:
    if not (agreeing(own, other, *_all_pairs(own, other))).any():
        return "their collectives differ"
    apart_ns = abs(float(np.median(own.end_ns)) - float(np.median(other.end_ns)))
    if apart_ns > MAX_OFFSET_NS:
        return f"their collectives end {apart_ns / 1e9:,.0f} s apart"
    return "their collectives end at different times whatever the offset of the clocks"


def _all_pairs(own: CollectiveSequence, other: CollectiveSequence) -> tuple[I8, I8]:
    """Pairs of collectives; an even selection of them where there are too many."""
    every = max(1, -(-len(own) * len(other) // _MAX_DIFFERENCES))
    rows = np.arange(0, len(own), every)
    return np.repeat(rows, len(other)), np.tile(np.arange(len(other)), len(rows))


def _number_differences(own: CollectiveSequence, other: CollectiveSequence) -> I8:
    """Differences of the ends of collectives with equal sequence numbers."""
    rows = rows_of_shared_keys(own, other)
    result: I8 = other.end_ns[rows[1]] - own.end_ns[rows[0]]
    return result


def _peaks(
    own: CollectiveSequence, other: CollectiveSequence, around_ns: float | None = None
) -> list[float]:
    """Offsets at which many ends meet, best first: all, or those around an offset."""
    i, j = _all_pairs(own, other)
    agree = agreeing(own, other, i, j)
    apart_ns = other.end_ns[j[agree]] - own.end_ns[i[agree]]
    bin_ns = _BIN_NS
    if around_ns is None:
        apart_ns = apart_ns[np.abs(apart_ns) <= MAX_OFFSET_NS]
    else:
        apart_ns = apart_ns[np.abs(apart_ns - around_ns) <= _SPARSE_NS]
        bin_ns = _FINE_BIN_NS
    if not len(apart_ns):
        return []
    lowest = int(apart_ns.min())
    counts = np.bincount((apart_ns - lowest) // bin_ns)
    counts = counts + np.append(counts[1:], 0)  # a cluster may lie on both sides of a border
    best = np.argsort(-counts, kind="stable")[:_MAX_PEAKS]
    return [float(lowest + (int(place) + 1) * bin_ns) for place in best]


def _aligned_at(
    own: CollectiveSequence,
    other: CollectiveSequence,
    line: ClockLine,
    labels: dict[int, int] | None,
    *,
    within_ns: float = REACH_NS,
    by_key: bool = False,
) -> Alignment | None:
    """Pairs the collectives on these clocks, to ``within_ns``. Offset and drift are refined until
    no more pairs are found."""
    i, j, apart = candidates(own, other, line, labels, by_key=by_key)
    apart = apart[np.abs(apart) <= within_ns]
    if not len(apart) or abs(line.offset_ns) > MAX_OFFSET_NS:
        return None
    line = replace(line, offset_ns=line.offset_ns + _densest(apart))
    num_pairs = 0
    for _ in range(_MAX_ROUNDS):
        i, j = pairs_in_order(own, other, line, labels, by_key=by_key)
        if len(i) <= num_pairs:
            break
        num_pairs = len(i)
        line = _fitted(own.end_ns[i], other.end_ns[j])
    return _alignment(own, other, line, i, j) if len(i) else None


def _alignment(
    own: CollectiveSequence, other: CollectiveSequence, line: ClockLine, i: I8, j: I8
) -> Alignment:
    known = (own.step[i] != NONE) & (other.step[j] != NONE)
    return Alignment(
        own=i,
        other=j,
        line=line,
        apart_ns=(other.end_ns[j] - line.to_other(own.end_ns[i])).astype(np.float64),
        same_step=float((own.step[i] == other.step[j])[known].mean()) if known.any() else 0.0,
    )


def _fitted(own_ns: I8, other_ns: I8) -> ClockLine:
    every = -(-len(own_ns) // _MAX_FITTED)
    own_ns, other_ns = own_ns[::every], other_ns[::every]
    since, gap = int(own_ns.min()), other_ns - own_ns
    level = int(np.median(gap))
    x, y = (own_ns - since).astype(np.float64), (gap - level).astype(np.float64)
    offset, drift = robust_line(x, y)
    return ClockLine(offset_ns=level + offset, drift=drift, since_ns=since)


def _densest(apart: F8) -> float:
    """Centre of the interval that holds the most values."""
    values = np.sort(apart)
    last = np.searchsorted(values, values + 2 * _NEAR_NS, side="right") - 1
    first = int(np.argmax(last - np.arange(len(values))))
    return float(np.median(values[first : last[first] + 1]))
