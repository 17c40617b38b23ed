"""Peak memory of every rank, and what holds it."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np

from augury.core.graph import NONE, Graph
from augury.core.kinds import MemoryKind
from augury.core.timeline import Holder, PeakMemory
from augury.replay.schedule import Schedule


def peak_memory(graph: Graph, schedule: Schedule) -> tuple[PeakMemory, ...]:
    """One entry for every rank that holds memory. What ends at a time stamp is given back before
    what starts then takes its own: what is given back as it is taken, or before, counts nowhere."""
    buffers = graph.buffers
    if not len(buffers):
        return ()
    taken_ns = np.where(buffers.taken_by == NONE, 0, schedule.start_ns[buffers.taken_by])
    is_given = (buffers.given_by != NONE) & (buffers.later == 0)
    given_ns = np.where(is_given, schedule.end_ns[buffers.given_by], np.iinfo(np.int64).max)
    taken = np.flatnonzero(taken_ns < given_ns)
    given = taken[is_given[taken]]
    rank = np.concatenate([buffers.rank[taken], buffers.rank[given]])
    at_ns = np.concatenate([taken_ns[taken], given_ns[given]])
    change = np.concatenate([buffers.size_bytes[taken], -buffers.size_bytes[given]])
    order = np.lexsort((change >= 0, at_ns, rank))
    rank, at_ns, change = rank[order], at_ns[order], change[order]
    peaks = []
    bounds = np.flatnonzero(np.diff(rank, prepend=NONE, append=NONE)).tolist()
    for begin, end in pairwise(bounds):
        held = np.cumsum(change[begin:end])
        # Of equal peaks the last: in a run of windows the settled one.
        peak = len(held) - 1 - int(held[::-1].argmax())
        owner, peak_ns = int(rank[begin]), int(at_ns[begin + peak])
        live = (buffers.rank == owner) & (taken_ns <= peak_ns) & (given_ns > peak_ns)
        peaks.append(
            PeakMemory(
                rank=owner,
                size_bytes=int(held[peak]),
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
    holders = [
        Holder(kind=MemoryKind(kind), layer=graph.strings[layer], size_bytes=size)
        for (kind, layer), size in sizes.items()
    ]
    return tuple(sorted(holders, key=lambda h: (-h.size_bytes, h.kind, h.layer)))
