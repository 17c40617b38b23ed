"""How much memory every rank holds, over time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from augury.core.graph import NONE
from augury.core.timeline import Timeline


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryCurve:
    """From ``at_ns`` on, ``rank`` holds ``held_bytes``; by rank, then time."""

    rank: NDArray[np.int64]
    at_ns: NDArray[np.int64]
    held_bytes: NDArray[np.int64]


def memory_curve(timeline: Timeline) -> MemoryCurve:
    """What one operation gives back at the moment another takes is counted as given first."""
    buffers = timeline.graph.buffers
    taken_at = np.where(
        buffers.taken_by == NONE, 0, timeline.start_ns[np.maximum(buffers.taken_by, 0)]
    )
    is_given = (buffers.given_by != NONE) & (buffers.later == 0)
    given_at = timeline.end_ns[buffers.given_by[is_given]]
    rank = np.concatenate([buffers.rank, buffers.rank[is_given]]).astype(np.int64)
    at = np.concatenate([taken_at, given_at]).astype(np.int64)
    change = np.concatenate([buffers.size_bytes, -buffers.size_bytes[is_given]])
    order = np.lexsort((at, rank))
    rank, at, total = rank[order], at[order], np.cumsum(change[order])
    # One point a moment: its last; and what the ranks before hold does not count.
    last = np.append((rank[1:] != rank[:-1]) | (at[1:] != at[:-1]), True)[: len(rank)]
    rank_ends = np.append(rank[1:] != rank[:-1], True)[: len(rank)]
    sums = np.concatenate([[0], total[rank_ends]])[:-1]
    before = np.repeat(sums, np.diff(np.flatnonzero(np.append(True, rank_ends))))
    return MemoryCurve(rank=rank[last], at_ns=at[last], held_bytes=(total - before)[last])
