"""How much memory every rank holds, over time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from augury.core.graph.graph import NONE
from augury.core.timeline import Timeline

_NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryCurve:
    """From ``at_ns`` on, ``rank`` holds ``held_bytes``; by rank, then time."""

    rank: NDArray[np.int64]
    at_ns: NDArray[np.int64]
    held_bytes: NDArray[np.int64]


def memory_curve(timeline: Timeline) -> MemoryCurve:
    """What one operation gives back at the moment another takes is counted as given first."""
    buffers = timeline.graph.buffers
    is_taken, is_given = buffers.taken_by != NONE, buffers.given_by != NONE
    later = buffers.later == 1
    # An index of NONE picks any time; the conditions pick another one then.
    starts, ends = timeline.start_ns[buffers.taken_by], timeline.end_ns[buffers.given_by]
    taken_ns = np.where(is_taken, starts, 0)
    given_ns = np.where(is_given & ~later, ends, _NEVER)
    if not len(timeline.graph.carries):
        return _curve(buffers.rank, buffers.size_bytes, taken_ns, given_ns)
    # A window in steady state: the one before was the same, a period earlier. What it held
    # beyond its end is still there; what was held from the very beginning counts once.
    period_ns = timeline.step_ns * max(timeline.graph.num_steps, 1)
    before_ns = np.where(is_given, np.where(later, ends, ends - period_ns), 0)
    lasting = is_taken | ~is_given
    held_over = is_taken & (before_ns > 0)
    return _curve(
        np.concatenate([buffers.rank[lasting], buffers.rank[held_over]]),
        np.concatenate([buffers.size_bytes[lasting], buffers.size_bytes[held_over]]),
        np.concatenate([taken_ns[lasting], np.maximum(taken_ns[held_over] - period_ns, 0)]),
        np.concatenate([given_ns[lasting], before_ns[held_over]]),
    )


def _curve(
    owner: NDArray[np.int32],
    size_bytes: NDArray[np.int64],
    taken_ns: NDArray[np.int64],
    given_ns: NDArray[np.int64],
) -> MemoryCurve:
    is_given = given_ns != _NEVER
    rank = np.concatenate([owner, owner[is_given]]).astype(np.int64)
    at_ns = np.concatenate([taken_ns, given_ns[is_given]])
    change = np.concatenate([size_bytes, -size_bytes[is_given]])
    order = np.lexsort((at_ns, rank))
    rank, at_ns, held = rank[order], at_ns[order], np.cumsum(change[order])
    if not len(rank):
        return MemoryCurve(rank=rank, at_ns=at_ns, held_bytes=held)
    new_rank = np.flatnonzero(np.diff(rank, prepend=-1))
    before = np.concatenate([[0], held[new_rank[1:] - 1]])
    held -= np.repeat(before, np.diff(new_rank, append=len(rank)))
    # One point a moment: its last.
    last = np.append((rank[1:] != rank[:-1]) | (at_ns[1:] != at_ns[:-1]), True)
    return MemoryCurve(rank=rank[last], at_ns=at_ns[last], held_bytes=held[last])
