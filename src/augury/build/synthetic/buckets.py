"""Filling of gradient buckets by size."""

from __future__ import annotations

from collections.abc import Sequence


def close_buckets(sizes_bytes: Sequence[int], cap_bytes: int) -> list[range]:
    """Returns the positions of each bucket, in the order in which buckets become ready.

    Backward computes the gradient of the last tensor first. A bucket closes as soon as it has
    ``cap_bytes``.
    """
    buckets = []
    high, held_bytes = len(sizes_bytes), 0
    for position in range(len(sizes_bytes) - 1, -1, -1):
        held_bytes += sizes_bytes[position]
        if held_bytes >= cap_bytes or position == 0:
            buckets.append(range(position, high))
            high, held_bytes = position, 0
    return buckets
