"""How gloo cuts what it sums: known to whoever reads its messages and whoever foretells them."""

from __future__ import annotations

MAX_SEGMENT_BYTES = 1 << 20
ELEMENT_SIZES = (4, 2, 8, 1)
"""In the order in which they are tried where nothing tells."""
SEGMENTS_A_RANK = 2
"""At least: one travels while another is added up."""


def segments(
    size_bytes: int, num_ranks: int, element_bytes: int = ELEMENT_SIZES[0]
) -> tuple[int, int]:
    """How many segments each rank owns, and their size."""
    largest = element_bytes * max(1, MAX_SEGMENT_BYTES // element_bytes)
    wanted = max(-(-size_bytes // largest), SEGMENTS_A_RANK * num_ranks)
    per_rank = -(-wanted // num_ranks)
    segment = -(-size_bytes // (per_rank * num_ranks))
    return per_rank, -(-segment // element_bytes) * element_bytes
