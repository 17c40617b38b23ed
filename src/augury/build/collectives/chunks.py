"""Division of a tensor into chunks, exact to the byte."""

from __future__ import annotations


def even_chunks(size_bytes: int, num_chunks: int) -> list[int]:
    """Returns sizes that differ by at most one byte, larger ones first."""
    size, larger = divmod(size_bytes, num_chunks)
    return [size + 1] * larger + [size] * (num_chunks - larger)


def capped_chunks(size_bytes: int, cap_bytes: int) -> list[int]:
    """Returns chunks of ``cap_bytes`` and the rest; at least one, which may be empty."""
    full, rest = divmod(size_bytes, cap_bytes)
    return [cap_bytes] * full + ([rest] if rest or not full else [])
