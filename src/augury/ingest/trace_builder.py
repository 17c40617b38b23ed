"""Collects the events of all ranks in writable columns and makes the tables of a Trace of them."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

import numpy as np
from numpy.typing import NDArray

from augury.core.columns import I4, I8, U1
from augury.core.enums import StreamKind
from augury.core.graph.graph import NONE
from augury.core.string_table import StringColumn, StringPool
from augury.core.trace.trace import Clock, Events, Streams
from augury.ingest.ancestors import enclosing
from augury.ingest.clocks.rank_clocks import to_common


@dataclass(kw_only=True)
class MutableEvents:
    """Events of one rank on its own clock; ``cause`` is a row of the same table."""

    kind: U1
    stream: I4
    name: I4
    start_ns: I8
    dur_ns: I8
    arrival_ns: I8
    step: I4
    phase: U1
    layer: I4
    size_bytes: I8
    group: I4
    sequence: I4
    cause: I4

    @classmethod
    def blank(cls, start_ns: I8, dur_ns: I8) -> MutableEvents:
        size = len(start_ns)
        return cls(
            kind=np.zeros(size, dtype=np.uint8),
            stream=np.zeros(size, dtype=np.int32),
            name=np.full(size, NONE, dtype=np.int32),
            start_ns=start_ns.copy(),
            dur_ns=dur_ns.copy(),
            arrival_ns=start_ns.copy(),
            step=np.full(size, NONE, dtype=np.int32),
            phase=np.zeros(size, dtype=np.uint8),
            layer=np.full(size, NONE, dtype=np.int32),
            size_bytes=np.zeros(size, dtype=np.int64),
            group=np.full(size, NONE, dtype=np.int32),
            sequence=np.full(size, NONE, dtype=np.int32),
            cause=np.full(size, NONE, dtype=np.int32),
        )

    def __len__(self) -> int:
        return len(self.start_ns)

    def at(self, rows: NDArray[np.intp]) -> MutableEvents:
        """Returns a copy of some rows. Causes are copied: they must be rows of the copy."""
        return MutableEvents(
            **{entry.name: getattr(self, entry.name)[rows] for entry in fields(MutableEvents)}
        )

    def move_to(self, clock: Clock) -> None:
        """Converts all times to the common clock."""
        end_ns = to_common(clock, self.end_ns)
        self.start_ns = to_common(clock, self.start_ns)
        self.dur_ns = end_ns - self.start_ns
        self.arrival_ns = to_common(clock, self.arrival_ns)

    @property
    def end_ns(self) -> I8:
        return self.start_ns + self.dur_ns


@dataclass
class TraceBuilder:
    """Events of all ranks, with the strings, streams and groups that they share."""

    strings: StringPool = field(default_factory=StringPool)
    _groups: dict[tuple[tuple[int, ...], str], int] = field(default_factory=dict)
    _streams: dict[tuple[int, StreamKind, str], int] = field(default_factory=dict)
    _parts: list[tuple[int, MutableEvents]] = field(default_factory=list)

    def numbers(self, strings: StringColumn) -> I4:
        """Number of each row's string in the pool; NONE for an empty one."""
        number = np.full(len(strings.strings) + 1, NONE, dtype=np.int32)
        for at in strings.in_order():
            if strings.strings[at]:
                number[at] = self.strings.number(strings.strings[at])
        found: I4 = number[strings.number]
        return found

    def stream(self, rank: int, kind: StreamKind, name: str) -> int:
        return self._streams.setdefault((rank, kind, name), len(self._streams))

    def group(self, ranks: tuple[int, ...], communicator: str = "") -> int:
        """The same ranks may have several communicators, each with its own order."""
        return self._groups.setdefault((ranks, communicator), len(self._groups))

    def groups_for(self, communicator: str) -> list[int]:
        """Groups whose communicator's name starts with ``communicator``."""
        return [n for (_, name), n in self._groups.items() if name.startswith(communicator)]

    @property
    def groups(self) -> list[list[int]]:
        return [list(ranks) for ranks, _ in self._groups]

    def add(self, rank: int, events: MutableEvents) -> None:
        self._parts.append((rank, events))

    def streams(self) -> Streams:
        rows = list(self._streams)
        return Streams(
            kind=np.array([kind for _, kind, _ in rows], dtype=np.uint8),
            rank=np.array([rank for rank, _, _ in rows], dtype=np.int32),
            name=np.array([self.strings.number(name) for _, _, name in rows], dtype=np.int32),
        )

    def stream_keys(self) -> list[tuple[int, StreamKind, str]]:
        """Returns rank, kind and name of each stream by its number."""
        return list(self._streams)

    def stream_kinds(self) -> U1:
        return np.array([kind for _, kind, _ in self._streams], dtype=np.uint8)

    def events(self) -> Events:
        by_rank: dict[int, list[MutableEvents]] = {}
        for rank, part in self._parts:
            by_rank.setdefault(rank, []).append(part)
        first_row = 0
        tables: list[Events] = []
        for rank, parts in sorted(by_rank.items()):
            tables.append(rank_events(rank, joined(parts), self.stream_kinds(), first_row))
            first_row += len(tables[-1])
        self.streams()  # their names come after those of events
        return Events.joined(tables)


def joined(parts: list[MutableEvents]) -> MutableEvents:
    """Returns the events of all parts of one rank."""
    if len(parts) == 1:
        return parts[0]
    before = np.cumsum([0, *map(len, parts[:-1])])
    columns = {
        entry.name: np.concatenate([getattr(part, entry.name) for part in parts])
        for entry in fields(MutableEvents)
    }
    causes = [
        np.where(part.cause == NONE, NONE, part.cause + first)
        for part, first in zip(parts, before.tolist(), strict=True)
    ]
    columns["cause"] = np.concatenate(causes)
    return MutableEvents(**columns)


def rank_events(rank: int, own: MutableEvents, stream_kinds: U1, first_row: int) -> Events:
    """Returns the sorted events of one rank, whose first one is row ``first_row`` of the table."""
    order = np.lexsort((-own.dur_ns, own.start_ns, own.stream))
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(first_row, first_row + len(order))
    columns = {entry.name: getattr(own, entry.name)[order] for entry in fields(MutableEvents)}
    cause = columns.pop("cause")
    parent = enclosing(columns["stream"], columns["start_ns"], columns["dur_ns"])
    # Devices and communicators run several events at once that do not enclose each other.
    nests = np.isin(stream_kinds, [StreamKind.MAIN_THREAD, StreamKind.THREAD])
    has_parent = (parent != NONE) & nests[columns["stream"]]
    return Events(
        rank=np.full(len(order), rank, dtype=np.int32),
        cause=np.where(cause == NONE, NONE, place[np.maximum(cause, 0)]),
        parent=np.where(has_parent, parent + first_row, NONE),
        **columns,
    )
