"""Segment sizes of gloo's ring all-reduce, for reading its messages and predicting them."""

from __future__ import annotations

MAX_SEGMENT_BYTES = 1 << 20
ELEMENT_SIZES = (4, 2, 8, 1)
"""Sizes of elements, in the order in which they are tried if the size is unknown."""
SEGMENTS_A_RANK = 2
"""Minimum number of segments per rank: one is in flight while another is summed."""


def segments(
    size_bytes: int, num_ranks: int, element_bytes: int = ELEMENT_SIZES[0]
) -> tuple[int, int]:
    """Returns the number of segments per rank and their size in bytes."""
    largest = element_bytes * max(1, MAX_SEGMENT_BYTES // element_bytes)
    wanted = max(-(-size_bytes // largest), SEGMENTS_A_RANK * num_ranks)
    per_rank = -(-wanted // num_ranks)
    segment = -(-size_bytes // (per_rank * num_ranks))
    return per_rank, -(-segment // element_bytes) * element_bytes
