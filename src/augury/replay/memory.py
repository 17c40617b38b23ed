"""Peak memory of every rank, and what holds it."""

from __future__ import annotations

from collections import Counter

import numpy as np

from augury.core.graph import NONE, Graph
from augury.core.kinds import MemoryKind
from augury.core.timeline import Holder, PeakMemory
from augury.replay.schedule import Schedule


def peak_memory(graph: Graph, schedule: Schedule) -> tuple[PeakMemory, ...]:
    """One entry for every rank that holds memory. What ends at a time stamp is given back before
    what starts then takes its own."""
    buffers = graph.buffers
    if not len(buffers):
        return ()
    taken_ns = np.where(buffers.taken_by == NONE, 0, schedule.start_ns[buffers.taken_by])
    is_given = (buffers.given_by != NONE) & (buffers.later == 0)
    given_ns = np.where(
        is_given, schedule.end_ns[buffers.given_by], np.iinfo(np.int64).max
    )
    rank = np.concatenate([buffers.rank, buffers.rank[is_given]])
    at_ns = np.concatenate([taken_ns, given_ns[is_given]])
    change = np.concatenate([buffers.size_bytes, -buffers.size_bytes[is_given]])
    order = np.lexsort((change >= 0, at_ns, rank))
    rank, at_ns, change = rank[order], at_ns[order], change[order]
    held = np.cumsum(change)
    peaks = []
    bounds = [0, *(np.flatnonzero(np.diff(rank)) + 1).tolist(), len(rank)]
    for begin, end in zip(bounds, bounds[1:], strict=False):
        before = int(held[begin - 1]) if begin else 0
        # Of equal peaks the last: in a run of windows the settled one.
        peak = end - 1 - int(held[begin:end][::-1].argmax())
        owner, peak_ns = int(rank[begin]), int(at_ns[peak])
        live = (buffers.rank == owner) & (taken_ns <= peak_ns) & (given_ns > peak_ns)
        peaks.append(
            PeakMemory(
                rank=owner,
                size_bytes=int(held[peak]) - before,
                at_ns=peak_ns,
                holders=_holders(graph, np.flatnonzero(live).tolist()),
            )
        )
    return tuple(peaks)


def _holders(graph: Graph, live: list[int]) -> tuple[Holder, ...]:
    sizes: Counter[tuple[int, int]] = Counter()
    for buffer in live:
        key = (int(graph.buffers.kind[buffer]), int(graph.buffers.layer[buffer]))
        sizes[key] += int(graph.buffers.size_bytes[buffer])
    return tuple(
        Holder(kind=MemoryKind(kind), layer=graph.strings[layer], size_bytes=size)
        for (kind, layer), size in sizes.most_common()
    )
