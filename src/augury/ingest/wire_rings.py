"""All-reduces told by nothing but the lengths of messages: for jobs of which there is no Trace.

A ring sends segments of one size, but for the last: from that size, the last one's, and where in
the order it comes, follows how many bytes were reduced. What follows so is written out and held
against the messages, each of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from augury.core.table import I8
from augury.ingest.gloo import (
    ELEMENT_SIZES,
    MAX_SEGMENT_BYTES,
    SEGMENTS_A_RANK,
    all_reduce_lengths,
)

_LOOK_AHEAD = 4096
"""Messages of one rank in one all-reduce: some gigabytes."""
_AT_THE_END = 3.0
"""As a pause, that nothing follows."""


class Ring(NamedTuple):
    """Messages ``first`` to ``first + count - 1``."""

    first: int
    count: int
    size_bytes: int


def find_rings(times_ns: I8, lengths: I8, num_ranks: int, place: int) -> list[Ring]:
    """From messages of the rank at ``place`` to the one before it, in their order. What fits
    nothing is passed over."""
    found: list[Ring] = []
    known: dict[int, list[tuple[int, int]]] = {}
    at = 0
    while at < len(lengths):
        ring = _ring_at(at, times_ns, lengths, num_ranks, place, known)
        if ring is None:
            at += 1
            continue
        found.append(ring)
        at += ring.count
    return found


def _ring_at(
    at: int,
    times_ns: I8,
    lengths: I8,
    num_ranks: int,
    place: int,
    known: dict[int, list[tuple[int, int]]],
) -> Ring | None:
    """Of those that fit, the one whose end stands out most by a pause: two of one size may look
    like one of twice that."""
    ahead = lengths[at : at + _LOOK_AHEAD]
    seen = known.setdefault(int(ahead[0]), [])
    fitting: dict[int, tuple[int, int]] = {}
    for size_bytes, element_bytes in seen:
        _try(size_bytes, element_bytes, ahead, num_ranks, place, fitting)
    if not fitting:
        for size_bytes in _sizes(ahead, num_ranks, place):
            for element_bytes in ELEMENT_SIZES:
                _try(size_bytes, element_bytes, ahead, num_ranks, place, fitting)
        seen.extend(pair for pair in fitting.values() if pair not in seen)
    if not fitting:
        return None

    count = max(sorted(fitting, reverse=True), key=lambda count: _stands_out(times_ns, at, count))
    return Ring(at, count, fitting[count][0])


def _stands_out(times_ns: I8, at: int, count: int) -> float:
    """How much longer the pause behind messages is than those between them."""
    within = np.diff(times_ns[at : at + count])
    end = at + count
    if end == len(times_ns):
        return _AT_THE_END
    if not len(within):
        return 1.0
    return float(times_ns[end] - times_ns[end - 1]) / max(1.0, float(within.max()))


def _try(
    size_bytes: int,
    element_bytes: int,
    ahead: I8,
    num_ranks: int,
    place: int,
    fitting: dict[int, tuple[int, int]],
) -> None:
    if size_bytes % element_bytes:
        return
    expected = all_reduce_lengths(size_bytes, num_ranks, place, element_bytes)
    count = len(expected)
    if 0 < count <= len(ahead) and np.array_equal(expected, ahead[:count]):
        fitting.setdefault(count, (size_bytes, element_bytes))


def _sizes(ahead: I8, num_ranks: int, place: int) -> Iterator[int]:
    """What may have been reduced, if ``ahead`` begins with it."""
    fewest = SEGMENTS_A_RANK * num_ranks
    few = ahead[: 2 * fewest]
    distinct = list(dict.fromkeys(few.tolist()))[:4]
    for segment in distinct:
        for last in distinct:
            if last <= segment:
                for num_segments in range(1, fewest + 1):
                    yield (num_segments - 1) * segment + last
    segment = int(ahead[:2].max())
    if segment <= MAX_SEGMENT_BYTES // 2:
        return
    # Large ones have more segments, all of them in use. The last is shorter, where it is at all,
    # and tells by its place how many there are.
    run = np.flatnonzero(ahead != segment)
    other = int(run[0]) if len(run) else len(ahead)
    for per_rank in range(SEGMENTS_A_RANK + 1, other + 2):
        num_segments = per_rank * num_ranks
        if len(run) and _place_of_last(num_segments, per_rank, num_ranks, place) == other:
            yield (num_segments - 1) * segment + int(ahead[other])
        if 2 * per_rank * (num_ranks - 1) <= other:
            yield num_segments * segment


def _place_of_last(num_segments: int, per_rank: int, num_ranks: int, place: int) -> int:
    """Where the last segment first comes in the order of what a rank sends."""
    if place < num_ranks - 1:
        return num_segments - 1 - (place + 1) * per_rank
    return per_rank * (num_ranks - 1) + num_segments - 1 - place * per_rank
