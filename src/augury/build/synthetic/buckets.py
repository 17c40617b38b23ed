"""Gradients that travel together."""

from __future__ import annotations

from collections.abc import Sequence


def close_buckets(sizes_bytes: Sequence[int], cap_bytes: int) -> list[range]:
    """Positions of each bucket, in the order in which they become ready: the last tensor's
    gradient comes first. A bucket closes as soon as it has ``cap_bytes``."""
    buckets = []
    high, held_bytes = len(sizes_bytes), 0
    for position in range(len(sizes_bytes) - 1, -1, -1):
        held_bytes += sizes_bytes[position]
        if held_bytes >= cap_bytes or position == 0:
            buckets.append(range(position, high))
            high, held_bytes = position, 0
    return buckets
