"""Finds ring all-reduces by the lengths of messages alone.

A ring sends segments of one size; only the last segment is shorter. These two sizes and the place
of the last segment determine how many bytes were reduced. The lengths that follow are compared with
all messages. Messages of other lengths in between belong to another ring at the same time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from augury.core.columns import I8
from augury.core.gloo_segments import ELEMENT_SIZES, MAX_SEGMENT_BYTES, SEGMENTS_A_RANK, segments
from augury.ingest.wire.attribution.gloo_messages import all_reduce_lengths

_FAR = 4096
"""Messages considered for one ring of large segments: some gigabytes."""
_AT_ONCE = 4
"""Rings whose messages may be interleaved."""
_DISTINCT = 6
_MOST_RANKS = 4096
_MAX_FAILED = 5_000
"""Search stops after this many places without a ring."""
_AT_THE_END = 1.5
"""Relative length of the pause after the last message."""

Rows = NDArray[np.intp]


class Ring(NamedTuple):
    """Rows of the ring's messages, and the bytes that were reduced."""

    rows: Rows
    size_bytes: int


class _Fit(NamedTuple):
    rows: Rows
    size_bytes: int
    stands_out: float


def find_rings(
    times_ns: I8,
    lengths: I8,
    num_ranks: int,
    place: int,
    usual: Mapping[int, int] = MappingProxyType({}),
) -> list[Ring]:
    """Searches the messages from the rank at ``place`` to the rank before it, in order. Messages
    that fit no ring are skipped. ``usual`` counts known sizes: of several sizes that fit, the most
    frequent is chosen."""
    found: list[Ring] = []
    free = np.ones(len(lengths), dtype=bool)
    failed: set[bytes] = set()
    if num_ranks > _MOST_RANKS:
        return found
    near = min(_FAR, _AT_ONCE * 2 * SEGMENTS_A_RANK * num_ranks)
    at = 0
    while at < len(lengths):
        if not free[at]:
            at += 1
            continue
        is_large = lengths[at] > MAX_SEGMENT_BYTES // 2
        ahead = at + np.flatnonzero(free[at : at + (_FAR if is_large else near)])
        surroundings = lengths[ahead[:near]].tobytes()
        fit = None
        if surroundings not in failed:
            fit = _best(times_ns, lengths, ahead, num_ranks, place, usual)
        if fit is None:
            failed.add(surroundings)
            if len(failed) > _MAX_FAILED:
                break
            at += 1
            continue
        free[fit.rows] = False
        found.append(Ring(fit.rows, fit.size_bytes))
    return found


def _best(
    times_ns: I8,
    lengths: I8,
    ahead: Rows,
    num_ranks: int,
    place: int,
    usual: Mapping[int, int],
) -> _Fit | None:
    """Prefers a ring without other messages in between; then the most usual size; then the longest
    pause after it, because two rings of one size may look like one of twice that size; then the
    longest ring."""
    fits: dict[tuple[bool, int], _Fit] = {}
    for segment, rows, sizes in _guesses(lengths, ahead, num_ranks, place):
        seen = lengths[rows]
        for size_bytes in sizes:
            for element_bytes in ELEMENT_SIZES:
                if segments(size_bytes, num_ranks, element_bytes)[1] != segment:
                    continue
                count = _fitting(size_bytes, element_bytes, seen, num_ranks, place)
                is_in_one = count > 0 and bool(rows[count - 1] == ahead[count - 1])
                if not count or (is_in_one, count) in fits:
                    continue
                if is_in_one or _leaves_no_segment(lengths, ahead, rows[:count]):
                    pause = _stands_out(times_ns[ahead if is_in_one else rows], count)
                    fits[is_in_one, count] = _Fit(rows[:count], size_bytes, pause)

    def merit(key: tuple[bool, int]) -> tuple[bool, int, float, int]:
        fit = fits[key]
        return key[0], usual.get(fit.size_bytes, 0), fit.stands_out, key[1]

    best = max(fits, key=merit, default=None)
    return None if best is None else fits[best]


def _fitting(size_bytes: int, element_bytes: int, ahead: I8, num_ranks: int, place: int) -> int:
    """Number of messages of such a ring; 0 if the lengths differ."""
    if size_bytes % element_bytes:
        return 0
    expected = all_reduce_lengths(size_bytes, num_ranks, place, element_bytes)
    count = len(expected)
    is_equal = 0 < count <= len(ahead) and np.array_equal(expected, ahead[:count])
    return count if is_equal else 0


def _leaves_no_segment(lengths: I8, ahead: Rows, rows: Rows) -> bool:
    """Whether no message in between is slightly shorter than the segments: that would be the last
    segment of the same ring."""
    between = ahead[(ahead > rows[0]) & (ahead < rows[-1])]
    others = lengths[np.setdiff1d(between, rows, assume_unique=True)]
    short_by = lengths[rows].max() - others
    return not ((short_by > 0) & (short_by <= max(ELEMENT_SIZES) * len(rows))).any()


def _stands_out(times_ns: I8, count: int) -> float:
    """Ratio of the pause after the messages to the longest pause between them."""
    if count == len(times_ns):
        return _AT_THE_END
    if count == 1:
        return 1.0
    within = np.diff(times_ns[:count])
    return float(times_ns[count] - times_ns[count - 1]) / max(1.0, float(within.max()))


def _guesses(
    lengths: I8, ahead: Rows, num_ranks: int, place: int
) -> Iterator[tuple[int, Rows, list[int]]]:
    """Yields segment size, rows and possible sizes of rings that may begin here."""
    seen = lengths[ahead]
    first = int(seen[0])
    if first > MAX_SEGMENT_BYTES:
        return
    distinct = list(dict.fromkeys(seen[: min(_FAR, 8 * num_ranks)].tolist()))[:_DISTINCT]
    for segment in distinct:
        for last in distinct:
            if last <= segment and first in (segment, last):
                rows = ahead[(seen == segment) | (seen == last)]
                yield segment, rows, [*_few(segment, last, num_ranks)]
                if segment > MAX_SEGMENT_BYTES // 2:
                    yield segment, rows, [*_many(lengths[rows], segment, last, num_ranks, place)]


def _few(segment: int, last: int, num_ranks: int) -> Iterator[int]:
    """Small sums have a fixed number of segments; some are empty if the sum is tiny."""
    most = SEGMENTS_A_RANK * num_ranks
    fewest = most * (segment - max(ELEMENT_SIZES)) // segment
    for num_segments in range(max(1, fewest), most + 1):
        yield (num_segments - 1) * segment + last


def _many(seen: I8, segment: int, last: int, num_ranks: int, place: int) -> Iterator[int]:
    """Large sums have more segments, none of them empty. The place of the last segment, if it is
    shorter, determines their number."""
    shorter = np.flatnonzero(seen != segment)
    other = int(shorter[0]) if len(shorter) else len(seen)
    for per_rank in range(SEGMENTS_A_RANK + 1, other + 2):
        num_segments = per_rank * num_ranks
        if len(shorter) and _place_of_last(num_segments, per_rank, num_ranks, place) == other:
            yield (num_segments - 1) * segment + last
        if last == segment and 2 * per_rank * (num_ranks - 1) <= other:
            yield num_segments * segment


def _place_of_last(num_segments: int, per_rank: int, num_ranks: int, place: int) -> int:
    """Place of the last segment among the messages of a rank."""
    if place < num_ranks - 1:
        return num_segments - 1 - (place + 1) * per_rank
    return per_rank * (num_ranks - 1) + num_segments - 1 - place * per_rank
