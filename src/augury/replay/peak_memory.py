"""Peak memory of each rank, by kind and layer of the buffers held at that time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import pairwise

import numpy as np

from augury.core.enums import MemoryKind
from augury.core.graph.graph import NONE, Graph
from augury.core.timeline import Holder, PeakMemory
from augury.replay.engine import is_native_built
from augury.replay.op_times import OpTimes
from augury.replay.unroll import unroll

Sum = tuple[int, int, int]
"""Kind, layer and bytes."""


def peak_memory(graph: Graph, op_times: OpTimes) -> tuple[PeakMemory, ...]:
    """Returns the peak of each rank that has buffers. At one time stamp, memory is freed before
    other memory is allocated: a buffer that is freed when it is allocated, or before, does not
    count. ``op_times`` cover one window of the graph, or several in a row."""
    if not len(graph.buffers):
        return ()
    num_windows = len(op_times.end_ns) // graph.num_ops
    if not is_native_built():
        return peak_memory_in_python(unroll(graph, num_windows), op_times)
    from augury import _native  # noqa: PLC0415
    from augury.replay.kernel import native_graph  # noqa: PLC0415

    found = _native.peak_memory(
        native_graph(graph, num_windows), op_times.start_ns, op_times.end_ns
    )
    rank, size_bytes, at_ns, *holders = (column.tolist() for column in found)
    rows: dict[int, list[Sum]] = {owner: [] for owner in rank}
    for owner, kind, layer, size in zip(*holders, strict=True):
        rows[owner].append((kind, layer, size))
    # Most ranks hold the same buffers.
    named = {sums: _holders(graph, sums) for sums in {tuple(own) for own in rows.values()}}
    return tuple(
        PeakMemory(rank=owner, size_bytes=size, at_ns=at, holders=named[tuple(rows[owner])])
        for owner, size, at in zip(rank, size_bytes, at_ns, strict=True)
    )


def peak_memory_in_python(graph: Graph, op_times: OpTimes) -> tuple[PeakMemory, ...]:
    buffers = graph.buffers
    taken_ns = np.where(buffers.taken_by == NONE, 0, op_times.start_ns[buffers.taken_by])
    is_given = (buffers.given_by != NONE) & (buffers.later == 0)
    given_ns = np.where(is_given, op_times.end_ns[buffers.given_by], np.iinfo(np.int64).max)
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
        # The last of equal peaks: over several windows, the one in the steady state.
        peak = len(held) - 1 - int(held[::-1].argmax())
        owner, peak_ns = int(rank[begin]), int(at_ns[begin + peak])
        live = (buffers.rank == owner) & (taken_ns <= peak_ns) & (given_ns > peak_ns)
        peaks.append(
            PeakMemory(
                rank=owner,
                size_bytes=int(held[peak]),
                at_ns=peak_ns,
                holders=_holders(graph, _sums(graph, np.flatnonzero(live).tolist())),
            )
        )
    return tuple(peaks)


def _sums(graph: Graph, live: list[int]) -> list[Sum]:
    sizes: Counter[tuple[int, int]] = Counter()
    for buffer in live:
        key = (int(graph.buffers.kind[buffer]), int(graph.buffers.layer[buffer]))
        sizes[key] += int(graph.buffers.size_bytes[buffer])
    return [(kind, layer, size) for (kind, layer), size in sizes.items()]


def _holders(graph: Graph, sums: Iterable[Sum]) -> tuple[Holder, ...]:
    holders = [
        Holder(kind=MemoryKind(kind), layer=graph.strings[layer], size_bytes=size)
        for kind, layer, size in sums
    ]
    return tuple(sorted(holders, key=lambda h: (-h.size_bytes, h.kind, h.layer)))
