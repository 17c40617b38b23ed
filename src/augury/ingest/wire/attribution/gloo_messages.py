"""How gloo talks over TCP, and what its collectives are made of: lengths of messages, in order.

Every message has a header of six 64-bit words. The receiver asks for those first, and then for as
many bytes as they announce; some messages are nothing but a header. All-reduces are rings: once
around to add up, once more to tell the sums, in segments so that one can travel while another is
added.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from augury.core.columns import I8
from augury.core.gloo_segments import ELEMENT_SIZES, segments

HEADER_BYTES = 48


@lru_cache(maxsize=512)
def all_reduce_lengths(
    size_bytes: int, num_ranks: int, place: int, element_bytes: int = ELEMENT_SIZES[0]
) -> I8:
    """Payloads that the rank at ``place`` of its group sends to the one before it."""
    if num_ranks < 2 or size_bytes <= 0:
        return np.empty(0, dtype=np.int64)
    per_rank, segment = segments(size_bytes, num_ranks, element_bytes)
    turns = np.arange(per_rank * (num_ranks - 1), dtype=np.int64)
    number = np.concatenate([(place + 1) * per_rank + turns, place * per_rank + turns])
    offset = number % (per_rank * num_ranks) * segment
    length = np.minimum(segment, size_bytes - offset)
    found: I8 = length[length > 0]
    found.flags.writeable = False
    return found


def all_gather_lengths(size_bytes: int, num_ranks: int) -> I8:
    """Of ``size_bytes`` from every rank: what each passes on to the rank before it, in halves."""
    halves = [size_bytes // 2, size_bytes - size_bytes // 2]
    lengths = np.array(halves * max(0, num_ranks - 1), dtype=np.int64)
    found: I8 = lengths[lengths > 0]
    return found


def all_reduce_bytes(size_bytes: int, num_ranks: int) -> int:
    """What all ranks together send: each byte goes around the ring twice, but for one hop."""
    return 2 * (num_ranks - 1) * size_bytes
