"""Decodes and checks the allocator's events in a Kineto file (``profile_memory=True``).

Each event states a size, an address, and the bytes that are allocated and reserved afterwards.
These totals are what the allocator measured. Sizes and addresses say who holds the memory; they are
used as far as they agree with the totals.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from augury.core.columns import F8, I4, I8
from augury.core.graph.graph import NONE
from augury.core.ledger import Ledger, Severity

MEMORY_EVENT = "[memory]"
_UNKNOWN = np.iinfo(np.int64).min
_MAX_NUMBER = 10**18
"""Numbers of more than 18 digits are unknown."""
_MAX_BYTES = 1 << 46
_MAX_DEVICES = 4096


@dataclass(frozen=True, kw_only=True, eq=False)
class MemoryEvents:
    """Events of the allocators of devices, in order of the file. Unknown numbers are the smallest
    integer."""

    thread: I4
    at_us: F8
    device: I8
    address: I8
    change_bytes: I8
    """Size of an allocation; negative for a free."""
    allocated_bytes: I8
    """Bytes that are allocated afterwards."""
    reserved_bytes: I8

    @classmethod
    def of(cls, thread: I4, at_us: F8, numbers: I8) -> MemoryEvents:
        """``numbers`` holds six per event: type and number of the device, address, size, allocated
        and reserved bytes."""
        columns = numbers.reshape(-1, 6).T
        return cls(
            thread=thread,
            at_us=at_us,
            device=columns[1],
            address=columns[2],
            change_bytes=columns[3],
            allocated_bytes=columns[4],
            reserved_bytes=columns[5],
        )

    def __len__(self) -> int:
        return len(self.thread)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MemoryEvents) and all(
            np.array_equal(getattr(self, each.name), getattr(other, each.name))
            for each in fields(self)
        )

    __hash__ = object.__hash__

    def at(self, rows: NDArray[np.intp] | NDArray[np.bool_]) -> MemoryEvents:
        return MemoryEvents(**{each.name: getattr(self, each.name)[rows] for each in fields(self)})


class _MemoryArgs(msgspec.Struct, frozen=True, gc=False):
    device_type: Any = msgspec.field(name="Device Type", default=None)
    device: Any = msgspec.field(name="Device Id", default=None)
    address: Any = msgspec.field(name="Addr", default=None)
    change_bytes: Any = msgspec.field(name="Bytes", default=None)
    allocated_bytes: Any = msgspec.field(name="Total Allocated", default=None)
    reserved_bytes: Any = msgspec.field(name="Total Reserved", default=None)


_decode = msgspec.json.Decoder(_MemoryArgs | None).decode


def memory_numbers(args: msgspec.Raw) -> list[int] | None:
    """Returns the six numbers of an event; None if it is of no device."""
    found = _decode(args) if args else None
    if found is None:
        return None
    values = (getattr(found, name) for name in found.__struct_fields__)
    numbers = [
        value if type(value) is int and abs(value) < _MAX_NUMBER else _UNKNOWN for value in values
    ]
    return numbers if numbers[0] > 0 else None


@dataclass(frozen=True, kw_only=True)
class AllocatorEvents:
    """Allocations and frees on one device, in order of time, on the process's own clock."""

    thread: I4
    at_ns: I8
    change_bytes: I8
    """Size of an allocation, negative for a free; 0 if it contradicts other events."""
    allocated_bytes: I8
    reserved_bytes: I8
    pair: I4
    """Row of the free of an allocation, and of the allocation of a free; NONE if it is not in the
    recording."""
    device: int

    def __len__(self) -> int:
        return len(self.thread)


def check_allocations(
    events: MemoryEvents, at_ns: I8, ledger: Ledger, source: str
) -> AllocatorEvents:
    """Returns the events of the device that reserves most, checked and paired."""
    known = (events.device >= 0) & (events.device < _MAX_DEVICES) & _is_size(events.reserved_bytes)
    device = int(events.device[known][events.reserved_bytes[known].argmax()]) if known.any() else 0
    own = events.device == device
    is_other = known & ~own
    ledger.note(
        "memory-of-other-devices",
        "a rank allocated memory on several devices; the one that reserves most is shown",
        severity=Severity.INFO,
        count=int(is_other.sum()),
        example=source,
    )
    num_invalid = int((~known & ~own).sum())
    rows = np.flatnonzero(own)
    rows = rows[np.argsort(at_ns[rows], kind="stable")]
    events, at_ns = events.at(rows), at_ns[rows]
    change, size = events.change_bytes, np.abs(np.maximum(events.change_bytes, -_MAX_NUMBER))
    has_change = (size > 0) & (size <= _MAX_BYTES)
    change = np.where(has_change, change, 0)
    has_totals = _is_size(events.allocated_bytes) & _is_size(events.reserved_bytes)
    has_totals &= events.allocated_bytes <= events.reserved_bytes
    num_invalid += int((~has_totals | ~has_change | (events.address <= 0)).sum())
    ledger.note(
        "invalid-memory-event",
        "an event of the allocator has impossible values; the totals of other events count",
        count=num_invalid,
        example=source,
    )
    # The totals of an event without valid ones follow from those before it and its size.
    last = np.maximum.accumulate(np.where(has_totals, np.arange(len(rows)), NONE))
    first = int(np.searchsorted(last, 0))
    last, change, at_ns = last[first:], change[first:], at_ns[first:]
    since = np.cumsum(change)
    last = last - first
    allocated = events.allocated_bytes[first:][last] + since - since[last]
    allocated = np.clip(allocated, 0, _MAX_BYTES)
    reserved = np.maximum(events.reserved_bytes[first:][last], allocated)
    contradicts = np.zeros(len(change), dtype=bool)
    contradicts[1:] = np.diff(allocated) != change[1:]
    before = allocated[:1] - change[:1]
    contradicts[:1] = (before < 0) | (before > reserved[:1])
    change[:1][contradicts[:1]] = 0  # the memory held before follows from it
    pair, usable = _paired(events.address[first:], change)
    if not _fits(change, usable, pair, allocated):
        usable[:] = False
    contradicts |= ~usable & (change != 0)
    ledger.note(
        "contradictory-memory",
        "sizes and totals of the allocator's events contradict each other; memory whose holder is"
        " unknown counts as held before",
        count=int((contradicts & has_totals[first:] & has_change[first:]).sum()),
        example=source,
    )
    return AllocatorEvents(
        thread=events.thread[first:],
        at_ns=at_ns,
        change_bytes=np.where(usable, change, 0),
        allocated_bytes=allocated,
        reserved_bytes=reserved,
        pair=np.where(usable, pair, NONE).astype(np.int32),
        device=device,
    )


def _is_size(values: I8) -> NDArray[np.bool_]:
    return (values >= 0) & (values <= _MAX_BYTES)


def _paired(address: I8, change: I8) -> tuple[I8, NDArray[np.bool_]]:
    """Returns the partner of each event, and which events can be used: an allocation before a free
    of the same address and size, a free before all other events of its address, and an allocation
    after them."""
    rows = np.flatnonzero((change != 0) & (address > 0))
    rows = rows[np.argsort(address[rows], kind="stable")]
    here, delta = address[rows], change[rows]
    same = here[1:] == here[:-1]
    is_pair = same & (delta[:-1] > 0) & (delta[1:] == -delta[:-1])
    pair = np.full(len(change), NONE, dtype=np.int64)
    pair[rows[:-1][is_pair]] = rows[1:][is_pair]
    pair[rows[1:][is_pair]] = rows[:-1][is_pair]
    starts = np.concatenate([[True], ~same])[: len(rows)]
    ends = np.concatenate([~same, [True]])[: len(rows)]
    usable = pair != NONE
    usable[rows[(starts & (delta < 0)) | (ends & (delta > 0))]] = True
    return pair, usable


def _fits(change: I8, usable: NDArray[np.bool_], pair: I8, allocated: I8) -> bool:
    """Whether the known holders never hold more than is allocated."""
    delta = np.where(usable, change, 0).astype(np.float64)
    held_before = -float(delta[(pair == NONE) & (delta < 0)].sum())
    if not len(delta) or held_before > allocated[0] - delta[0]:
        return not len(delta)
    return bool((np.cumsum(delta) + held_before <= allocated).all())


class _Device(msgspec.Struct, frozen=True):
    id: int = 0
    totalGlobalMem: int = 0  # noqa: N815


def device_capacities(properties: msgspec.Raw) -> dict[int, int]:
    """Returns the memory of each device that a trace describes, in bytes."""
    try:
        devices = msgspec.json.decode(properties, type=list[_Device]) if properties else []
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    return {
        one.id: one.totalGlobalMem
        for one in devices[:_MAX_DEVICES]
        if 0 < one.totalGlobalMem <= _MAX_BYTES and 0 <= one.id < _MAX_DEVICES
    }
