"""Pairs collectives of two ranks whose ends meet at a given offset of the clocks.

Either rank may lack some of them. Pairs are in the same order on both ranks, and ran at the same
time: all members of a collective run at once while its data moves.
"""

from __future__ import annotations

from bisect import bisect_left

import numpy as np

from augury.core.columns import I8
from augury.core.graph.graph import NONE
from augury.ingest.collectives.matching.collective_sequence import (
    F8,
    ClockLine,
    CollectiveSequence,
    agreeing,
    rows_of_shared_keys,
    to_neighbour,
)

REACH_NS = 5_000_000
"""Largest distance of the ends of one collective after alignment."""
_MIN_USUAL_NS = 30_000.0
"""Ends of one collective that are no farther apart need no further evidence."""
_MAX_USUAL_NS = 1_000_000.0
_OVERLAP_SLACK_NS = 2_000_000
_MAX_CANDIDATES = 4_000_000
_MAX_ROUNDS = 6
_MAX_RIVALS = 6
"""Candidates for one collective that are compared, nearest first."""


def pairs_in_order(
    own: CollectiveSequence,
    other: CollectiveSequence,
    line: ClockLine,
    labels: dict[int, int] | None,
    *,
    by_key: bool,
) -> tuple[I8, I8]:
    """Returns the rows of pairs that are each other's nearest and cannot be confused."""
    i, j, apart = _nearest_of_both(*candidates(own, other, line, labels, by_key=by_key))
    i, j, _ = _in_order(own, *_unambiguous(own, other, line, i, j, apart))
    return i, j


def candidates(
    own: CollectiveSequence,
    other: CollectiveSequence,
    line: ClockLine,
    labels: dict[int, int] | None,
    *,
    by_key: bool,
) -> tuple[I8, I8, F8]:
    """Pairs that may be the same collective, with the distance of their ends. All members of a
    collective run at once while its data moves."""
    common_ns = line.to_other(own.end_ns)
    if by_key:
        i, j = (rows.astype(np.int64) for rows in rows_of_shared_keys(own, other))
        i, j = _with_unnumbered(own, other, common_ns, i, j)
    else:
        i, j = _near(common_ns, other.end_ns)
    agree = agreeing(own, other, i, j, labels)
    begin_ns = line.to_other(own.start_ns)
    agree &= begin_ns[i] <= other.end_ns[j] + _OVERLAP_SLACK_NS
    agree &= other.start_ns[j] <= common_ns[i] + _OVERLAP_SLACK_NS
    i, j = i[agree], j[agree]
    return i, j, (other.end_ns[j] - common_ns[i]).astype(np.float64)


def _near(common_ns: I8, other_ns: I8) -> tuple[I8, I8]:
    first = np.searchsorted(other_ns, common_ns - REACH_NS, side="left")
    last = np.searchsorted(other_ns, common_ns + REACH_NS, side="right")
    counts = np.minimum(last - first, max(1, _MAX_CANDIDATES // max(1, len(common_ns))))
    i = np.repeat(np.arange(len(common_ns)), counts)
    j = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    return i, j + np.repeat(first, counts)


def _with_unnumbered(
    own: CollectiveSequence, other: CollectiveSequence, common_ns: I8, i: I8, j: I8
) -> tuple[I8, I8]:
    """Adds pairs near in time of which at least one has no sequence number."""
    more_i, more_j = _near(common_ns, other.end_ns)
    unnumbered = (own.key[more_i] == NONE) | (other.key[more_j] == NONE)
    return np.concatenate([i, more_i[unnumbered]]), np.concatenate([j, more_j[unnumbered]])


def _nearest_of_both(i: I8, j: I8, apart: F8) -> tuple[I8, I8, F8]:
    """Keeps pairs of which each is the nearest of the other, then the same among the rest."""
    taken: list[tuple[I8, I8, F8]] = []
    for _ in range(_MAX_ROUNDS):
        if not len(i):
            break
        order = np.argsort(np.abs(apart), kind="stable")
        i, j, apart = i[order], j[order], apart[order]
        first_of_i = np.unique(i, return_index=True)[1]
        first_of_j = np.unique(j, return_index=True)[1]
        both = np.intersect1d(first_of_i, first_of_j)
        taken.append((i[both], j[both], apart[both]))
        left = ~np.isin(i, i[both]) & ~np.isin(j, j[both])
        i, j, apart = i[left], j[left], apart[left]
    if not taken:
        return i, j, apart
    i, j, apart = (np.concatenate(columns) for columns in zip(*taken, strict=True))
    order = np.argsort(i, kind="stable")
    return i[order], j[order], apart[order]


def _unambiguous(
    own: CollectiveSequence, other: CollectiveSequence, line: ClockLine, i: I8, j: I8, apart: F8
) -> tuple[I8, I8, F8]:
    """Drops pairs whose ends are farther apart than usual, unless they ran at the same time and
    have no neighbours that they could be confused with. Collectives of a stream run one after the
    other, so two of them do not overlap on any two ranks."""
    if not len(i):
        return i, j, apart
    away, usual = np.abs(apart), _usual_ns(apart)
    nearest = np.minimum(to_neighbour(own)[i], to_neighbour(other)[j])
    ran_together = _overlap_ns(own, other, line, i, j) >= -usual
    kept = (away <= usual) | (ran_together & (nearest > 2.5 * away))
    kept |= (own.key[i] != NONE) & (own.key[i] == other.key[j])
    return i[kept], j[kept], apart[kept]


def _in_order(own: CollectiveSequence, i: I8, j: I8, apart: F8) -> tuple[I8, I8, F8]:
    """Keeps the pairs that have the same order on both ranks, separately for each communicator."""
    kept = np.zeros(len(i), dtype=bool)
    for label in np.unique(own.label[i]).tolist():
        rows = np.flatnonzero(own.label[i] == label)
        kept[rows[_longest_rise(j[rows].tolist())]] = True
    return i[kept], j[kept], apart[kept]


def _longest_rise(values: list[int]) -> list[int]:
    """Places of the longest rising subsequence."""
    ends: list[int] = []
    places: list[int] = []
    before: list[int] = []
    for place, value in enumerate(values):
        at = bisect_left(ends, value)
        before.append(places[at - 1] if at else -1)
        if at == len(ends):
            ends.append(value)
            places.append(place)
        else:
            ends[at], places[at] = value, place
    found, place = [], places[-1] if places else -1
    while place >= 0:
        found.append(place)
        place = before[place]
    return found[::-1]


def most_pairs(
    own: CollectiveSequence,
    other: CollectiveSequence,
    line: ClockLine,
    labels: dict[int, int] | None,
    i: I8,
    j: I8,
    *,
    by_key: bool,
) -> tuple[I8, I8]:
    """Pairs as many collectives as possible in order, where some are left on both ranks. Of two
    that end at almost the same time, the nearest end may be that of the other one."""
    all_i, all_j, apart = candidates(own, other, line, labels, by_key=by_key)
    free = ~np.isin(all_i, i), ~np.isin(all_j, j)
    if not free[0].any() or not free[1].any():
        return i, j
    now = (other.end_ns[j] - line.to_other(own.end_ns[i])).astype(np.float64)
    usual = _usual_ns(now)
    overlap_ns = _overlap_ns(own, other, line, all_i, all_j)
    kept = (overlap_ns >= -usual) & (_place_in_run(all_i, apart) < _MAX_RIVALS)
    all_i, all_j, apart = all_i[kept], all_j[kept], apart[kept]
    found: dict[int, int] = {}
    for label in np.unique(own.label[all_i]).tolist():
        rows = np.flatnonzero(own.label[all_i] == label)
        rows = rows[np.lexsort((-all_j[rows], all_i[rows]))]
        weight = 1 - 0.5 * np.minimum(1, np.abs(apart[rows]) / _MAX_USUAL_NS)
        for row in _heaviest_rise(all_j[rows].tolist(), weight.tolist()):
            found.setdefault(int(all_j[rows[row]]), int(all_i[rows[row]]))
    if len(found) <= len(i):
        return i, j
    pairs = np.array(sorted((own_row, row) for row, own_row in found.items()), dtype=np.int64)
    return pairs[:, 0], pairs[:, 1]


def _usual_ns(apart: F8) -> float:
    """Distance of ends up to which a pair needs no further evidence."""
    return min(max(_MIN_USUAL_NS, 4 * float(np.median(np.abs(apart)))), _MAX_USUAL_NS)


def _overlap_ns(
    own: CollectiveSequence, other: CollectiveSequence, line: ClockLine, i: I8, j: I8
) -> I8:
    """Time for which both parts of each pair ran; negative where one ended before."""
    begin_ns = np.maximum(line.to_other(own.start_ns)[i], other.start_ns[j])
    done_ns = np.minimum(line.to_other(own.end_ns)[i], other.end_ns[j])
    result: I8 = done_ns - begin_ns
    return result


def _place_in_run(i: I8, apart: F8) -> I8:
    """Place of each candidate among those of the same collective, nearest first."""
    order = np.lexsort((np.abs(apart), i))
    first = np.searchsorted(i[order], i[order], side="left")
    place = np.empty(len(i), dtype=np.int64)
    place[order] = np.arange(len(i)) - first
    return place


def _heaviest_rise(values: list[int], weights: list[float]) -> list[int]:
    """Places of the rising subsequence with the largest sum of weights (prefix maxima in a Fenwick
    tree)."""
    ranked = {value: number for number, value in enumerate(sorted(set(values)), start=1)}
    best: list[tuple[float, int]] = [(0.0, -1)] * (len(ranked) + 1)
    before: list[int] = []
    top = (0.0, -1)
    for place, (value, weight) in enumerate(zip(values, weights, strict=True)):
        number = ranked[value] - 1
        found = (0.0, -1)
        while number > 0:
            found = max(found, best[number])
            number -= number & -number
        before.append(found[1])
        reached = (found[0] + weight, place)
        top = max(top, reached)
        number = ranked[value]
        while number <= len(ranked):
            best[number] = max(best[number], reached)
            number += number & -number
    found_places, place = [], top[1]
    while place >= 0:
        found_places.append(place)
        place = before[place]
    return found_places[::-1]
