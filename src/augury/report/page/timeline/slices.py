"""Lanes of a timeline and the slices on them, as columns; merging of slices that are too many."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from augury.core.columns import I4, I8, U1, Table, column
from augury.core.enums import OpKind, are_communication

NONE = -1


class Source(IntEnum):
    """Origin of the slices on a lane."""

    PATH = 0
    MEASURED = 1
    REPLAYED = 2


class Colour(IntEnum):
    """Kinds of work that the timeline tells apart."""

    OTHER = 0
    FORWARD = 1
    BACKWARD = 2
    UPDATE = 3
    COMMUNICATION = 4
    DATA = 5
    LAUNCH = 6
    WAITING = 7
    UNEXPLAINED = 8
    SERVER = 9


_COLOURS = {
    OpKind.FORWARD: Colour.FORWARD,
    OpKind.BACKWARD: Colour.BACKWARD,
    OpKind.RECOMPUTE: Colour.BACKWARD,
    OpKind.UPDATE: Colour.UPDATE,
    OpKind.DATA: Colour.DATA,
    OpKind.COPY: Colour.DATA,
    OpKind.LAUNCH: Colour.LAUNCH,
    OpKind.SYNC: Colour.WAITING,
    OpKind.DELAY: Colour.WAITING,
    OpKind.UNEXPLAINED: Colour.UNEXPLAINED,
    OpKind.SERVER_COPY: Colour.SERVER,
    OpKind.SERVER_SUM: Colour.SERVER,
    OpKind.SERVER_UPDATE: Colour.SERVER,
}


def colours_of(kind: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Colour of each OpKind in a column."""
    table = np.zeros(256, dtype=np.uint8)
    for op_kind, colour in _COLOURS.items():
        table[op_kind] = colour
    return np.where(are_communication(kind), Colour.COMMUNICATION, table[kind]).astype(np.uint8)


@dataclass(frozen=True, slots=True)
class Lane:
    """A row of the timeline; ``rank`` is NONE if it belongs to no rank."""

    source: Source
    rank: int
    name: str


@dataclass(frozen=True, kw_only=True, eq=False)
class Slices(Table):
    """Slices of one source, sorted by lane, then start. ``name`` and ``layer`` are numbers of the
    source's strings, NONE without one."""

    lane: I4 = column("<i4")
    start_ns: I8 = column("<i8")
    dur_ns: I8 = column("<i8")
    wait_ns: I8 = column("<i8")
    """First part of the duration, in which it only waits for other ranks."""
    colour: U1 = column("<u1")
    name: I4 = column("<i4")
    layer: I4 = column("<i4")
    step: I4 = column("<i4")
    size_bytes: I8 = column("<i8")
    is_critical: U1 = column("<u1")
    reason: U1 = column("<u1")
    """Reason of a segment of the critical path, else 0."""
    count: I4 = column("<i4")
    """Number of operations that were merged into it."""

    @classmethod
    def of(cls, **columns: Any) -> Slices:
        """Makes slices of the columns that differ from 0, or from 1 for ``count``."""
        number = len(columns["start_ns"])
        defaults = {name: np.full(number, int(name == "count")) for name, _ in cls.schema()}
        return cls(**defaults | columns)

    def take(self, rows: NDArray[np.integer] | NDArray[np.bool_]) -> Slices:
        return Slices(**{name: values[rows] for name, values in self.columns()})


def merge_short(slices: Slices, limit: int) -> tuple[Slices, NDArray[np.int64]]:
    """Keeps the longest slices and merges runs of shorter ones, so that about ``limit`` remain.
    Returns them, and the new row of each old one."""
    number = len(slices)
    if number <= limit:
        return slices, np.arange(number)
    wanted = max(1, limit // 2)
    threshold = int(np.partition(slices.dur_ns, number - wanted)[number - wanted])
    kept = slices.dur_ns > threshold
    gap_ns = slices.start_ns[1:] - (slices.start_ns + slices.dur_ns)[:-1]
    # A run of short slices ends at a kept one, at a pause that can be seen, and with its lane.
    apart = kept[1:] | kept[:-1] | (slices.lane[1:] != slices.lane[:-1]) | (gap_ns > threshold)
    first = np.concatenate([[True], apart])
    new_row = np.cumsum(first) - 1
    head = np.flatnonzero(first)
    end_ns = np.maximum.reduceat(slices.start_ns + slices.dur_ns, head)
    merged = slices.take(head)
    count = np.add.reduceat(slices.count, head)
    fields = dict(merged.columns()) | {
        "dur_ns": end_ns - merged.start_ns,
        "count": count,
        "wait_ns": np.where(np.diff(head, append=number) == 1, merged.wait_ns, 0),
        "is_critical": np.maximum.reduceat(slices.is_critical, head),
    }
    whole = Slices(**fields)
    if len(whole) > limit and limit < len(whole) < number:
        again, row = merge_short(whole, limit)
        return again, row[new_row]
    return whole, new_row
