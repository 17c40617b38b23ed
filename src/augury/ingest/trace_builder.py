"""Collects the events of all ranks in writable columns and makes the tables of a Trace of them."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

import numpy as np

from augury.core.columns import I4, I8, U1
from augury.core.enums import StreamKind
from augury.core.graph.graph import NONE
from augury.core.string_table import StringPool
from augury.core.trace.trace import Clock, Events, Streams
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

    def events(self) -> Events:
        parts = [part for _, part in self._parts]
        if not parts:
            return Events.empty()
        columns = {
            entry.name: np.concatenate([getattr(part, entry.name) for part in parts])
            for entry in fields(MutableEvents)
        }
        sizes = [len(part) for part in parts]
        rank = np.repeat(np.array([r for r, _ in self._parts], dtype=np.int32), sizes)
        before = np.repeat(np.cumsum([0, *sizes[:-1]]), sizes)
        cause = columns["cause"]
        cause = np.where(cause == NONE, NONE, cause + before)
        order = np.lexsort((-columns["dur_ns"], columns["start_ns"], columns["stream"], rank))
        place = np.empty(len(order), dtype=np.int64)
        place[order] = np.arange(len(order))
        cause = np.where(cause == NONE, NONE, place[np.maximum(cause, 0)])
        columns = {name: values[order] for name, values in columns.items()}
        columns["cause"] = cause[order].astype(np.int32)
        rows = self.streams()
        parent = enclosing(columns["stream"], columns["start_ns"], columns["dur_ns"])
        # Devices and communicators run several events at once that do not enclose each other.
        nests = np.isin(rows.kind, [StreamKind.MAIN_THREAD, StreamKind.THREAD])
        parent[~nests[columns["stream"]]] = NONE
        return Events(rank=rank[order], parent=parent, **columns)


def enclosing(stream: I4, start_ns: I8, dur_ns: I8) -> I4:
    """Returns the row of the innermost event around each event on its stream, or -1.

    Rows are sorted by (stream, start, longest first)."""
    parent: list[int] = []
    ends = (start_ns + dur_ns).tolist()
    opened: list[int] = []
    current = -1
    for i, (own, start) in enumerate(zip(stream.tolist(), start_ns.tolist(), strict=True)):
        if own != current:
            current = own
            opened.clear()
        # An event that ends where the next one starts does not enclose it.
        while opened and ends[opened[-1]] <= start:
            opened.pop()
        parent.append(opened[-1] if opened else -1)
        opened.append(i)
    return np.array(parent, dtype=np.int32)
