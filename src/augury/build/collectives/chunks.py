"""Cutting a tensor into pieces, to the byte."""

from __future__ import annotations


def even_chunks(size_bytes: int, num_chunks: int) -> list[int]:
    """As equal as bytes allow; the larger ones first."""
    size, larger = divmod(size_bytes, num_chunks)
    return [size + 1] * larger + [size] * (num_chunks - larger)


def capped_chunks(size_bytes: int, cap_bytes: int) -> list[int]:
    """All of ``cap_bytes`` but the last; one, maybe empty, at least."""
    full, rest = divmod(size_bytes, cap_bytes)
    return [cap_bytes] * full + ([rest] if rest or not full else [])
