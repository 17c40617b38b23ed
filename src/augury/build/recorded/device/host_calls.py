"""Operations of host threads: calls of the device's runtime, and the program's time between."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from augury.build.recorded.device.blocking_calls import awaited_kernels
from augury.build.recorded.device.device_rank import DeviceRank
from augury.build.recorded.device.idle_threads import IdleWaits, find_waits
from augury.build.recorded.device.op_columns import GraphStrings, own_kind
from augury.core.columns import I8
from augury.core.enums import OpKind, ResourceKind, StreamKind
from augury.core.graph.builder import GraphBuilder
from augury.core.graph.graph import NONE

_LOADING, _BETWEEN, _OWN, _UNEXPLAINED, _LAUNCH, _CALL = range(6)
"""Operations of one call in their order: the program's time before it, in which it loads data, is
between two phases, works in the operation around the call, and is unexplained; the call up to the
start of its own kernel, if it waits for that; the call."""
_NUM_PARTS = 6
PAUSE, RESUME, STEP_END = range(-2, -5, -1)
"""Entries of a thread without a call, in place of its row: the thread begins to wait for another
one, the other one has finished, a step ends."""


@dataclass(frozen=True, slots=True)
class HostThread:
    """Calls and other entries of one thread, in order; each takes no time but a call."""

    rows: I8
    """Rows of the events of the thread, by start."""
    entry: I8
    """Row of the event of each call; a negative number for other entries."""
    start_ns: I8
    end_ns: I8
    step: I8
    awaited: I8
    """Row of the kernel that each call waits for; NONE for most."""
    handed_by: I8
    """Index of the thread that each entry waits for; NONE for most."""


def host_threads(own: DeviceRank) -> list[HostThread]:
    """Returns the main thread, which ends steps, and the others that call the device's runtime."""
    events, streams = own.trace.events, own.trace.streams
    is_main = [
        bool(streams.kind[int(events.stream[thread[0]])] == StreamKind.MAIN_THREAD)
        for thread in own.threads
    ]
    calling = [thread for thread, main in zip(own.threads, is_main, strict=True) if main]
    calling += [
        thread
        for thread, main in zip(own.threads, is_main, strict=True)
        if not main and np.isin(events.kind[thread], [OpKind.LAUNCH, OpKind.SYNC]).any()
    ]
    calling = calling or own.threads[:1]
    waits = find_waits(own, calling)
    # A step that ends meanwhile was ended by the thread that seems to wait.
    for i, one in enumerate(waits[:1]):
        ends = np.searchsorted(own.step_end_ns, [one.from_ns, one.until_ns])
        waits[i] = one.only(ends[0] == ends[1])
    handed_ns = [
        np.concatenate([one.until_ns[one.thread == i] for one in waits])
        for i in range(len(calling))
    ]
    return [
        _host_thread(own, thread, waits[i], handed_ns[i], own.step_end_ns[: 0 if i else None])
        for i, thread in enumerate(calling)
    ]


def _host_thread(
    own: DeviceRank, thread: I8, waits: IdleWaits, handed_ns: I8, step_end_ns: I8
) -> HostThread:
    """``handed_ns`` are times at which other threads wait for this one, ``step_end_ns`` those at
    which it ends steps."""
    events = own.trace.events
    calls = thread[np.isin(events.kind[thread], [OpKind.LAUNCH, OpKind.SYNC])]
    pauses_ns = np.unique(np.concatenate([waits.from_ns, handed_ns]))
    marks = np.repeat(
        [PAUSE, RESUME, STEP_END], [len(pauses_ns), len(waits.from_ns), len(step_end_ns)]
    )
    at_ns = np.concatenate([pauses_ns, waits.until_ns, step_end_ns])
    awaited, handed_by = np.full((2, len(marks)), NONE, dtype=np.int64)
    awaited[marks == RESUME], handed_by[marks == RESUME] = waits.kernel, waits.thread
    entry = np.concatenate([calls, marks])
    start_ns = np.concatenate([events.start_ns[calls], at_ns])
    end_ns = np.concatenate([own.end_ns(calls), at_ns])
    step = np.concatenate([events.step[calls], own.step_at(at_ns)])
    awaited = np.concatenate([awaited_kernels(own, calls), awaited])
    handed_by = np.concatenate([np.full(len(calls), NONE), handed_by])
    # At one time: a thread pauses, resumes, ends a step, calls.
    order = np.lexsort((np.where(entry < 0, -entry, len(events)), start_ns))
    columns = (entry, start_ns, end_ns, step, awaited, handed_by)
    return HostThread(thread, *(column[order] for column in columns))


@dataclass(frozen=True, slots=True)
class AddedThread:
    """The operations of one thread in the graph, one per entry."""

    first_op: I8
    """First operation of each entry."""
    launch_op: I8
    """Operation after which the kernels of each call may start."""
    last_op: I8
    """Last operation of each entry, which waits for ``awaited`` and ``handed_by``."""


def add_thread(
    builder: GraphBuilder,
    strings: GraphStrings,
    own: DeviceRank,
    thread: HostThread,
    start: int,
    *,
    step_end: OpKind,
) -> AddedThread:
    """Adds the calls of a thread in their order, and between them the time of the program: known as
    far as recorded operations cover it, unexplained otherwise. The first follows ``start``.
    ``step_end`` is the kind of the operations that end steps."""
    events = own.trace.events
    stream = int(events.stream[thread.rows[0]])
    resource = builder.resource(
        own.trace.strings[int(own.trace.streams.name[stream])],
        rank=own.row,
        kind=ResourceKind.HOST,
    )
    entry, is_call = thread.entry, thread.entry >= 0
    # Calls do not overlap: one begins when the one before has ended.
    end_ns = np.maximum(np.maximum.accumulate(thread.end_ns), own.origin_ns)
    free_ns = np.concatenate([[own.origin_ns], end_ns[:-1]])
    begin_ns = np.maximum(thread.start_ns, free_ns)
    own_ns = np.where(entry == RESUME, 0, begin_ns - free_ns)
    kind, name = _kinds_and_names(builder, strings, own, entry, is_call, step_end)
    phase_ns = _phase_starts(own, thread.rows, entry, kind[:, 0], free_ns, begin_ns)
    loads = thread.rows[events.kind[thread.rows] == OpKind.DATA]
    awaited, waits = thread.awaited, thread.awaited != NONE
    launches = waits & (events.cause[awaited] == entry)
    # A call that launches the kernel it waits for is cut where the kernel starts.
    cut_ns = np.clip(events.start_ns[awaited], begin_ns, end_ns)
    ended_ns = np.where(waits, own.end_ns(awaited), begin_ns)
    work_ns = np.zeros((len(entry), _NUM_PARTS), dtype=np.int64)
    times = _program_times(own, thread.rows, loads, free_ns, phase_ns, begin_ns)
    work_ns[own_ns > 0, : _UNEXPLAINED + 1] = times[own_ns > 0]
    work_ns[:, _LAUNCH] = np.where(launches, cut_ns - begin_ns, 0)
    work_ns[:, _CALL] = end_ns - np.maximum(begin_ns, ended_ns)
    work_ns = np.maximum(work_ns, 0)
    exists = work_ns > 0
    exists[:, _LAUNCH] = launches
    exists[:, _CALL] = True
    program = np.full(len(entry), builder.string("program"))
    name = np.column_stack([_last_names(builder, strings, own, loads, begin_ns), program, name])
    kind = np.column_stack([np.full((len(entry), 2), [int(OpKind.DATA), int(OpKind.OTHER)]), kind])
    step = np.repeat(thread.step, _NUM_PARTS).reshape(-1, _NUM_PARTS)
    work = work_ns[exists]
    first = builder.ops(
        name[exists],
        kind=kind[exists],
        rank=own.row,
        resource=np.where(work > 0, resource, NONE),
        work_ns=work,
        step=step[exists],
    )
    op = np.cumsum(exists.reshape(-1)).reshape(-1, _NUM_PARTS) - 1 + first
    number = np.arange(first, first + len(work))
    builder.edges(np.concatenate([[start], number[:-1]]), number)
    first_op = op[np.arange(len(op)), exists.argmax(axis=1)]
    return AddedThread(first_op, np.where(launches, op[:, _LAUNCH], op[:, _CALL]), op[:, _CALL])


def _kinds_and_names(
    builder: GraphBuilder,
    strings: GraphStrings,
    own: DeviceRank,
    entry: I8,
    is_call: np.ndarray,
    step_end: OpKind,
) -> tuple[I8, I8]:
    """Returns kind and name of the last four operations of each entry. The program's time before a
    call has those of the operation around the call."""
    events = own.trace.events
    call = np.where(is_call, entry, 0)
    parent = np.where(is_call, events.parent[call], NONE)
    around = np.where(parent == NONE, call, parent)
    own_name = np.where(parent == NONE, builder.string("program"), strings.of(events.name[around]))
    own_kinds = np.where(is_call, own_kind(events.kind[around]), int(OpKind.OTHER))
    marks = {
        PAUSE: (OpKind.MARK, "hands over"),
        RESUME: (OpKind.MARK, "goes on"),
        STEP_END: (step_end, "step ends"),
    }
    call_name, call_kind = strings.of(events.name[call]), events.kind[call].astype(np.int64)
    for mark, (kind, text) in marks.items():
        call_name = np.where(entry == mark, builder.string(text), call_name)
        call_kind = np.where(entry == mark, int(kind), call_kind)
    unexplained = np.full(len(entry), builder.string("unexplained"))
    return (
        np.column_stack(
            [own_kinds, np.full(len(entry), int(OpKind.UNEXPLAINED)), call_kind, call_kind]
        ),
        np.column_stack([own_name, unexplained, call_name, call_name]),
    )


def _program_times(
    own: DeviceRank, rows: I8, loads: I8, free_ns: I8, phase_ns: I8, begin_ns: I8
) -> I8:
    """Returns the times between ``free_ns`` and ``begin_ns`` as columns: loading of data, between
    two phases, which lasts until ``phase_ns``, in an operation, unexplained. ``rows`` are recorded
    operations, ``loads`` those that load data."""
    known_ns = _known_between(own, rows, free_ns, begin_ns)
    # Calls of a loader, and what is between them, have kinds of their own.
    is_loader = _known_between(own, loads, begin_ns, begin_ns + 1) > 0
    loading_ns = _known_between(own, loads, free_ns, begin_ns)
    between_ns = _known_between(own, rows, free_ns, phase_ns)
    between_ns -= _known_between(own, loads, free_ns, phase_ns)
    loading_ns[is_loader] = between_ns[is_loader] = 0
    in_operation_ns = known_ns - loading_ns - between_ns
    unexplained_ns = begin_ns - free_ns - known_ns
    return np.column_stack([loading_ns, between_ns, in_operation_ns, unexplained_ns])


def _phase_starts(own: DeviceRank, rows: I8, entry: I8, kind: I8, free_ns: I8, begin_ns: I8) -> I8:
    """Returns, for each call of another kind than the call before, when the outermost operation of
    that kind around it began, if after ``free_ns``: what is before belongs to no phase. Other
    entries have ``free_ns``. ``rows`` are the events of the thread."""
    events = own.trace.events
    calls = np.flatnonzero(entry >= 0)
    is_first = np.ones(len(calls), dtype=bool)
    is_first[1:] = kind[calls[1:]] != kind[calls[:-1]]
    firsts = calls[is_first]
    kinds, parent = own_kind(events.kind[rows]), events.parent[rows]
    place = np.minimum(np.searchsorted(rows, parent), len(rows) - 1)
    is_same = (rows[place] == parent) & (kinds[place] == kinds)
    outermost = np.where(is_same, place, np.arange(len(rows)))
    # Doubles the distance: a hostile trace may nest as many events as it has.
    while ((further := outermost[outermost]) != outermost).any():
        outermost = further
    around = entry[firsts]
    around = np.where(events.parent[around] == NONE, around, events.parent[around])
    around = rows[outermost[np.searchsorted(rows, around)]]
    found = free_ns.copy()
    found[firsts] = np.clip(events.start_ns[around], free_ns[firsts], begin_ns[firsts])
    return found


def _last_names(
    builder: GraphBuilder, strings: GraphStrings, own: DeviceRank, rows: I8, before_ns: I8
) -> I8:
    """Returns the name of the last of ``rows``, by start, that began before each time."""
    if not len(rows):
        return np.full(len(before_ns), builder.string(""))
    place = np.searchsorted(own.trace.events.start_ns[rows], before_ns) - 1
    return strings.of(own.trace.events.name[rows[np.maximum(place, 0)]])


def _known_between(own: DeviceRank, rows: I8, begin_ns: I8, end_ns: I8) -> I8:
    """Returns how much of each time between two others the recorded operations cover."""
    if not len(rows):
        return np.zeros(len(begin_ns), dtype=np.int64)
    # Times since the epoch have no exact float.
    begin_ns, end_ns = begin_ns - own.origin_ns, end_ns - own.origin_ns
    start_ns = own.trace.events.start_ns[rows] - own.origin_ns
    reached = np.maximum.accumulate(own.end_ns(rows) - own.origin_ns)
    before = np.maximum(np.concatenate([[0], reached[:-1]]), 0)
    adds = reached > before
    first, last = np.maximum(start_ns, before)[adds], reached[adds]
    spent = np.cumsum(last - first)
    times = np.concatenate([[0], np.column_stack([first, last]).reshape(-1)])
    covered = np.column_stack([spent - (last - first), spent]).reshape(-1)
    covered = np.concatenate([[0], covered])
    within = np.interp(end_ns, times, covered) - np.interp(begin_ns, times, covered)
    return np.asarray(np.rint(within), dtype=np.int64)
