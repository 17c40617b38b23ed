"""Reads traces of torch's profiler (Kineto): Chrome trace JSON with times in microseconds.

Only complete events are read. Python functions (``with_stack``) are left out, but for the frames
of modules in traces with kernels: they are no operations.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from augury.core.columns import I4, I8
from augury.core.errors import FileFormatError
from augury.core.graph.graph import NONE
from augury.core.ledger import Ledger, Severity
from augury.core.string_table import StringColumn
from augury.ingest.ancestors import enclosing
from augury.ingest.formats.kineto_events import (
    FRAME_CATEGORY,
    Args,
    DistributedInfo,
    EventColumns,
    read_events,
)
from augury.ingest.formats.memory_events import (
    AllocatorEvents,
    check_allocations,
    device_capacities,
)
from augury.ingest.run_files import ReadBudget
from augury.ingest.vocabulary.phase_words import MODULE_FRAME

_MAX_ROUNDING_NS = 1_000
"""Longest overlap of two events in a row. Microseconds since 1970 have floats 250 ns apart."""
_MAX_US = 3e15
_MAX_NS = 3 * 10**18
"""A time after 2060, with room for clock offsets and durations."""
_MAX_DUR_US = 1e12
KERNEL_CATEGORY = "kernel"
COPY_CATEGORIES = frozenset({"gpu_memcpy", "gpu_memset"})
RUNTIME_CATEGORIES = frozenset({"cuda_runtime", "cuda_driver"})
_DEVICE_CATEGORIES = COPY_CATEGORIES | {KERNEL_CATEGORY}
_NO_ARGS = Args()


@dataclass(frozen=True, slots=True)
class Thread:
    """A thread of the process, or a stream of a device."""

    pid: int | str
    tid: int | str
    name: str
    is_device: bool


@dataclass(frozen=True, slots=True)
class CommunicationArgs:
    """Arguments of events that communicate; those of other events are columns of the trace."""

    by_row: Mapping[int, Args]

    def __getitem__(self, row: int) -> Args:
        return self.by_row.get(int(row), _NO_ARGS)


@dataclass(frozen=True, kw_only=True)
class KinetoTrace:
    """Events sorted by (thread, start, longest first), on the process's own clock."""

    thread: I4
    start_ns: I8
    dur_ns: I8
    parent: I4
    """Row of the innermost event around it on its thread; -1 on devices."""
    name: StringColumn
    category: StringColumn
    sequence: I8
    """Sequence number of autograd; -1 for none."""
    forward_thread: I8
    """Thread of the forward operation; 0 for events that are no backward nodes."""
    correlation: I8
    """Equal for a device event and the call that launched it; 0 for none."""
    external: I8
    """Number of the operation that a runtime call or device event belongs to; 0 for none."""
    size_bytes: I8
    args: CommunicationArgs
    threads: list[Thread]
    distributed: DistributedInfo
    host: str
    allocations: AllocatorEvents
    """Memory of the rank's device; their threads are indices into ``threads``, or NONE."""
    around_allocation: I4
    """Row of the innermost event around each of ``allocations``; NONE if there is none."""
    before_allocation: I4
    """Row of the last event that started before each of them on its thread, or NONE."""
    capacities: dict[int, int]
    """Memory of each device in bytes."""

    def __len__(self) -> int:
        return len(self.name)

    @property
    def is_on_device(self) -> NDArray[np.bool_]:
        """Whether each event ran on a stream of a device."""
        is_device = np.array([thread.is_device for thread in self.threads], dtype=bool)
        found: NDArray[np.bool_] = is_device[self.thread] if len(self) else is_device[:0]
        return found

    def named(self, prefix: str) -> Iterator[int]:
        """Rows of events whose names start with ``prefix``."""
        rows: list[int] = np.flatnonzero(
            self.name.where(lambda name: name.startswith(prefix))
        ).tolist()
        return iter(rows)


def read_kineto(path: Path, ledger: Ledger, budget: ReadBudget | None = None) -> KinetoTrace:
    """Raises an InputError for other formats; impossible events are dropped and counted."""
    events = read_events(path, budget)
    ledger.note(
        "repaired-trace",
        "a trace had values or bytes that JSON does not allow, such as inf; they were replaced",
        severity=Severity.INFO,
        count=int(events.is_repaired),
        example=path.name,
    )
    base_ns = events.head.baseTimeNanoseconds
    if abs(base_ns) > _MAX_NS:
        raise FileFormatError(
            f"{path} has an absurd base time ({base_ns} ns)", remedy="record it again"
        )
    start_us, dur_us = events.start_us, events.dur_us
    is_read = _are_read(events)
    sane = (np.abs(start_us) < _MAX_US) & (dur_us < _MAX_DUR_US)
    start_ns = nanoseconds(np.where(sane, start_us, 0)) + base_ns
    sane &= np.abs(start_ns) < _MAX_NS
    ledger.note(
        "absurd-time",
        "an event has an impossible time or duration",
        count=int((is_read & ~sane).sum()),
        example=path.name,
    )
    ledger.note(
        "negative-duration",
        "an event ends before it starts; its duration is set to 0",
        count=int((is_read & (dur_us < 0)).sum()),
        example=path.name,
    )
    rows = np.flatnonzero(is_read & sane)
    dur_ns = nanoseconds(np.maximum(dur_us[rows], 0))
    return _sorted(
        events, rows, start_ns[rows], dur_ns, _allocations(events, base_ns, ledger, path)
    )


def _allocations(events: EventColumns, base_ns: int, ledger: Ledger, path: Path) -> AllocatorEvents:
    """Returns the events of the allocator, on threads as ``events.addresses`` numbers them."""
    memory = events.memory
    sane = np.abs(memory.at_us) < _MAX_US
    at_ns = nanoseconds(np.where(sane, memory.at_us, 0)) + base_ns
    sane &= np.abs(at_ns) < _MAX_NS
    ledger.note(
        "invalid-memory-event",
        "an event of the allocator has impossible values; the totals of other events count",
        count=int((~sane).sum()),
        example=path.name,
    )
    return check_allocations(memory.at(sane), at_ns[sane], ledger, path.name)


def _are_read(events: EventColumns) -> NDArray[np.bool_]:
    """Events without the frames of modules in traces without kernels: kernels get their layers from
    the modules that launched them."""
    found = ~events.category.where(FRAME_CATEGORY.__eq__)
    if KERNEL_CATEGORY in events.category.strings:
        found |= events.name.where(lambda name: name.startswith(MODULE_FRAME))
    return found


def _sorted(
    events: EventColumns,
    rows: NDArray[np.int64],
    start_ns: I8,
    dur_ns: I8,
    allocations: AllocatorEvents,
) -> KinetoTrace:
    """The trace of the given rows of ``events``, whose times are ``start_ns`` and ``dur_ns``."""
    threads, thread, number_of = _threads(events, rows)
    allocations = replace(allocations, thread=number_of[allocations.thread])
    order = np.lexsort((-dur_ns, start_ns, thread))
    thread, start_ns, dur_ns = thread[order], start_ns[order], dur_ns[order]
    device = np.array([each.is_device for each in threads], dtype=bool)
    parent, dur_ns = _nested(thread, start_ns, dur_ns)
    if len(parent):
        parent[device[thread]] = -1
    around, before = _around(allocations, thread, start_ns, dur_ns)
    picked = rows[order]
    place = np.full(len(events.thread), -1, dtype=np.int64)
    place[picked] = np.arange(len(picked))
    return KinetoTrace(
        thread=thread,
        start_ns=start_ns,
        dur_ns=dur_ns,
        parent=parent,
        name=events.name.take(picked),
        category=events.category.take(picked),
        sequence=events.sequence[picked],
        forward_thread=events.forward_thread[picked],
        correlation=events.correlation[picked],
        external=events.external[picked],
        size_bytes=events.size_bytes[picked],
        args=CommunicationArgs(
            {int(place[row]): args for row, args in events.args.items() if place[row] >= 0}
        ),
        threads=threads,
        distributed=events.head.distributedInfo or DistributedInfo(),
        host=events.head.host_name,
        allocations=allocations,
        around_allocation=around,
        before_allocation=before,
        capacities=device_capacities(events.head.deviceProperties),
    )


def _nested(thread: I4, start_ns: I8, dur_ns: I8) -> tuple[I4, I8]:
    """Returns the event around each event, and the durations. Times of large numbers are rounded,
    so that an event may seem to begin just before the one before it has ended: that one is ended
    there, because it does not enclose the next."""
    dur_ns = dur_ns.copy()
    parent = enclosing(thread, start_ns, dur_ns)
    inner = np.flatnonzero(parent >= 0)
    outer = parent[inner]
    while len(inner):
        shared_ns = start_ns[outer] + dur_ns[outer] - start_ns[inner]
        crosses = (shared_ns <= _MAX_ROUNDING_NS) & (2 * shared_ns < dur_ns[inner])
        # An event that begins where the one around it does is inside of it.
        crosses &= start_ns[inner] > start_ns[outer]
        inner, outer = inner[crosses], outer[crosses]
        np.minimum.at(dur_ns, outer, start_ns[inner] - start_ns[outer])
        # Those around an event that was ended may end there as well.
        outer = parent[outer]
        inner, outer = inner[outer >= 0], outer[outer >= 0]
    return enclosing(thread, start_ns, dur_ns), dur_ns


def _around(allocations: AllocatorEvents, thread: I4, start_ns: I8, dur_ns: I8) -> tuple[I4, I4]:
    """Returns the innermost of the sorted events around each allocation, and the last one before
    it on its thread; NONE if there is none."""
    num_events, count = len(thread), len(allocations)
    if not count:
        return allocations.thread, allocations.thread
    threads = np.concatenate([thread, allocations.thread])
    start = np.concatenate([start_ns, allocations.at_ns])
    dur = np.concatenate([dur_ns, np.zeros(count, dtype=np.int64)])
    order = np.lexsort((start, threads))  # stable: allocations come after events
    is_event = order < num_events
    parent = enclosing(threads[order], start[order], dur[order])
    # An allocation encloses nothing: all that encloses is an event.
    event_at = np.cumsum(is_event) - 1
    own = np.flatnonzero(~is_event)
    around, before = np.full((2, count), NONE, dtype=np.int32)
    which = order[own] - num_events
    has_parent = parent[own] >= 0
    around[which[has_parent]] = event_at[parent[own][has_parent]]
    earlier = event_at[own]
    is_same = (earlier >= 0) & (thread[np.maximum(earlier, 0)] == threads[order][own])
    before[which[is_same]] = earlier[is_same]
    outside = allocations.thread == NONE
    around[outside] = before[outside] = NONE
    return around, before


def nanoseconds(microseconds: NDArray[np.float64]) -> I8:
    """Converts whole part and fraction apart: their sum in nanoseconds has no exact float."""
    whole = np.floor(microseconds)
    rest: I8 = np.rint((microseconds - whole) * 1000).astype(np.int64)
    result: I8 = whole.astype(np.int64) * 1000 + rest
    return result


def _threads(events: EventColumns, rows: NDArray[np.int64]) -> tuple[list[Thread], I4, I4]:
    """Threads in order of their first event among ``rows``, the thread of each row, and that of
    each address, or NONE."""
    address = events.thread[rows]
    num_addresses = len(events.addresses)
    first = np.full(num_addresses, len(rows), dtype=np.int64)
    first[address[::-1]] = np.arange(len(rows))[::-1]
    order = np.argsort(first, kind="stable")[: int((first < len(rows)).sum())]
    number = np.full(num_addresses, NONE, dtype=np.int32)
    number[order] = np.arange(len(order))
    has_device_events = np.zeros(num_addresses, dtype=bool)
    on_device = events.category.where(_DEVICE_CATEGORIES.__contains__)
    has_device_events[address[on_device[rows]]] = True
    threads = []
    for at in order.tolist():
        pid, tid = events.addresses[at]
        name = events.thread_names.get((pid, tid), f"thread {tid}")
        threads.append(Thread(pid, tid, name, bool(has_device_events[at])))
    return threads, number[address], number
