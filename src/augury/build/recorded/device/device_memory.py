"""Buffers of a rank that ran on a device, from the events of the device's allocator.

Memory is allocated and freed while a thread runs an operation of the graph. Of the states of
memory during one operation, the one with the most bytes counts. A buffer is held from the first to
the last operation in whose state it exists, so the replayed peak of an unchanged run is the
measured one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from augury.build.recorded.device.device_rank import DeviceRank
from augury.build.recorded.device.host_calls import RESUME, AddedThread, HostThread
from augury.build.recorded.device.op_columns import GraphStrings
from augury.core.columns import I8
from augury.core.enums import MemoryKind, Phase
from augury.core.graph.builder import GraphBuilder
from augury.core.graph.graph import NONE
from augury.core.trace.trace import Allocations

Marks = NDArray[np.bool_]
_MAX_OTHER_THREADS = 16
"""Number of threads that are asked what happened while another one waited."""
_MAX_TOTAL_BYTES = float(1 << 60)
"""Largest sum of the buffers of a rank; a graph refuses larger ones."""


def add_memory(
    builder: GraphBuilder,
    strings: GraphStrings,
    own: DeviceRank,
    threads: Sequence[HostThread],
    added: Sequence[AddedThread],
) -> None:
    """Adds the memory that a rank held during its steps. A rank without threads holds that of its
    peak all the time."""
    table = own.trace.allocations
    first, last = np.searchsorted(table.rank, [own.rank, own.rank + 1]).tolist()
    if first == last:
        return
    window = (own.origin_ns, int(own.step_end_ns[-1]))
    begin, end = (np.searchsorted(table.at_ns[first:last], window, side="right") + first).tolist()
    if begin > first:
        held_bytes = int(table.allocated_bytes[begin - 1])
    else:
        held_bytes = max(0, int(table.allocated_bytes[first] - table.change_bytes[first]))
    states = np.concatenate([[held_bytes], table.allocated_bytes[begin:end]])
    took, gave = _operations(own, np.arange(begin, end), threads, added)
    samples = _sample(states, took, gave)
    known = _known(table, first, last, begin, end)
    sizes, at = known.size_bytes, samples.at
    from_sample = np.searchsorted(at, known.from_state)
    until_sample = np.searchsorted(at, known.until_state) - 1
    is_held = from_sample <= until_sample
    if float(sizes[is_held].astype(np.float64).sum()) > _MAX_TOTAL_BYTES:
        is_held[:] = False
    sizes, from_sample, until_sample = sizes[is_held], from_sample[is_held], until_sample[is_held]
    change = np.zeros(len(at) + 1, dtype=np.int64)
    np.add.at(change, from_sample, sizes)
    np.add.at(change, until_sample + 1, -sizes)
    unknown = np.maximum(states[at] - np.cumsum(change)[:-1], 0)
    more_from, more_until, more_bytes = _runs(unknown - unknown.min())
    is_before = np.concatenate([known.from_state[is_held] == 0, more_from == 0])
    is_after = np.concatenate(
        [known.until_state[is_held] == len(states), more_until == len(at) - 1]
    )
    num_unknown = len(more_from)
    rows = np.column_stack(
        [
            np.where(is_before, NONE, samples.taken_by[np.append(from_sample, more_from)]),
            np.where(is_after, NONE, samples.given_by[np.append(until_sample, more_until)]),
            np.append(known.kind[is_held], np.full(num_unknown, MemoryKind.OTHER)),
            np.append(strings.of(known.layer[is_held]), np.full(num_unknown, NONE)),
        ]
    )
    held = np.array([[NONE, NONE, MemoryKind.OTHER, NONE]])
    rows, place = np.unique(np.concatenate([rows, held]), axis=0, return_inverse=True)
    size_bytes = np.zeros(len(rows), dtype=np.int64)
    np.add.at(size_bytes, place.reshape(-1), np.concatenate([sizes, more_bytes, [unknown.min()]]))
    builder.buffers(
        size_bytes[size_bytes > 0],
        rank=own.row,
        taken_by=rows[size_bytes > 0, 0],
        given_by=rows[size_bytes > 0, 1],
        kind=rows[size_bytes > 0, 2],
        layer=rows[size_bytes > 0, 3],
    )


def _operations(
    own: DeviceRank, rows: I8, threads: Sequence[HostThread], added: Sequence[AddedThread]
) -> tuple[I8, I8]:
    """Returns the first and the last operation during which each allocation happened: those of its
    own thread, or of another one while the graph has its own thread wait."""
    events, table = own.trace.events, own.trace.allocations
    took, gave = np.full((2, len(rows)), NONE, dtype=np.int64)
    at_ns, is_left = table.at_ns[rows], np.ones(len(rows), dtype=bool)
    both = list(zip(threads, added, strict=True))
    for thread, ops in both:
        is_own = table.stream[rows] == events.stream[thread.rows[0]]
        _take(took, gave, is_left, is_own, _running(thread, ops, at_ns))
    for thread, ops in both[:_MAX_OTHER_THREADS]:
        _take(took, gave, is_left, is_left, _running(thread, ops, at_ns))
    if threads:  # all of them wait: the main thread's wait
        entry = np.searchsorted(np.maximum.accumulate(threads[0].end_ns), at_ns, side="right")
        entry = np.minimum(entry, len(threads[0].entry) - 1)
        last_op = added[0].last_op
        _take(took, gave, is_left, is_left, (last_op[np.maximum(entry - 1, 0)], last_op[entry]))
    return took, gave


def _running(thread: HostThread, ops: AddedThread, at_ns: I8) -> tuple[I8, I8]:
    """Returns the first and the last operation of the thread at each time; NONE while it waits."""
    entry = np.searchsorted(np.maximum.accumulate(thread.end_ns), at_ns, side="right")
    place = np.minimum(entry, len(thread.entry) - 1)
    waits = (entry > place) | (thread.entry[place] == RESUME)
    return np.where(waits, NONE, ops.first_op[place]), np.where(waits, NONE, ops.last_op[place])


def _take(took: I8, gave: I8, is_left: Marks, is_asked: Marks, operations: tuple[I8, I8]) -> None:
    """Fills in the operations of the allocations that are left and asked for."""
    here = is_left & is_asked & (operations[0] != NONE)
    took[here], gave[here] = operations[0][here], operations[1][here]
    is_left[here] = False


@dataclass(frozen=True, slots=True)
class _MemorySamples:
    """The state with the most bytes during each operation, in order of time."""

    at: I8
    taken_by: I8
    """First operation at the time of the state."""
    given_by: I8
    """Last one."""


def _sample(states: I8, took: I8, gave: I8) -> _MemorySamples:
    """``states`` are those before and after each event; ``took`` and ``gave`` are operations of
    each event. The first state belongs to the first event."""
    if not len(took):
        return _MemorySamples(np.zeros(1, np.int64), *np.full((2, 1), NONE, dtype=np.int64))
    starts = np.concatenate([[0], np.flatnonzero(gave[1:] != gave[:-1]) + 1])
    group = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(gave)))
    group = np.concatenate([[0], group])
    most = np.maximum.reduceat(states, np.concatenate([[0], starts[1:] + 1]))
    highest = np.flatnonzero(states == most[group])
    _, place = np.unique(group[highest], return_index=True)
    return _MemorySamples(highest[place], took[starts], gave[starts])


@dataclass(frozen=True, slots=True)
class _Known:
    """Buffers with known sizes, each from one state to another; state 0 is that at the start."""

    size_bytes: I8
    from_state: I8
    until_state: I8
    """First state without it; one after the last if it is never freed."""
    kind: I8
    layer: I8


def _known(table: Allocations, first: int, last: int, begin: int, end: int) -> _Known:
    """Returns the buffers of the rank with the rows ``first`` to ``last``; events from ``begin`` to
    ``end`` are in its steps."""
    change = table.change_bytes[first:last]
    pair = table.pair[first:last].astype(np.int64) - first
    has_pair = (table.pair[first:last] != NONE) & (pair >= 0) & (pair < len(change))
    rows = np.arange(last - first)
    taken = np.flatnonzero(change > 0)
    earlier = np.flatnonzero((change < 0) & ~has_pair)
    freed = np.concatenate([np.where(has_pair[taken], pair[taken], len(change)), earlier])
    start = np.concatenate([rows[taken], np.full(len(earlier), NONE)])
    own = np.concatenate([taken, earlier])
    # Buffers from before the steps count as held, whatever is known of them.
    is_before = start < begin - first
    phase = np.append(table.phase[first:last], Phase.NONE)
    taken_in, freed_in = phase[own], phase[np.minimum(freed, len(change))]
    kind = np.where(is_before, MemoryKind.OTHER, _kinds(taken_in, freed_in))
    return _Known(
        size_bytes=np.abs(change[own]),
        from_state=np.where(is_before, 0, start - (begin - first) + 1),
        until_state=np.clip(freed - (begin - first) + 1, 0, end - begin + 1),
        kind=kind,
        layer=np.where(is_before, NONE, table.layer[first:last][own]),
    )


def _kinds(taken: np.ndarray, freed: np.ndarray) -> I8:
    """Returns the kinds of buffers that were allocated and freed in these phases: memory that the
    next phase needs, or scratch memory of one phase."""
    kinds = np.full(len(taken), int(MemoryKind.OTHER), dtype=np.int64)
    for phase, kind in (
        (Phase.FORWARD, MemoryKind.ACTIVATION),
        (Phase.BACKWARD, MemoryKind.GRADIENT),
        (Phase.UPDATE, MemoryKind.OPTIMIZER),
    ):
        kinds[taken == phase] = kind
        kinds[(taken == phase) & (freed == phase)] = MemoryKind.WORKSPACE
    return kinds


def _runs(values: I8) -> tuple[I8, I8, I8]:
    """Returns first place, last place and value of each run of one value that is not 0."""
    starts = np.concatenate([[0], np.flatnonzero(np.diff(values)) + 1])
    ends = np.append(starts[1:], len(values)) - 1
    counts = values[starts] > 0
    return starts[counts], ends[counts], values[starts][counts]
