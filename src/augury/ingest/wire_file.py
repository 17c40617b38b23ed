"""What one process left of its socket calls: ``*.wire-*.bin``, or packed as ``*.wire.gz``.

A file may be of a process that was killed, may still be written to,
may be cut off, or may be made up: whatever does not fit is left out and counted.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from augury.core.errors import InputError
from augury.core.graph import NONE
from augury.core.ledger import Ledger, Severity
from augury.core.table import I4, I8, U1, Table, column
from augury.ingest.compressed import read_unpacked
from augury.ingest.wire_layout import (
    CONNECTION,
    EVENT,
    MAX_POSITION,
    MAX_TIME_NS,
    OF_THE_PARENT,
    RECEIVED,
    SEEN_FROM_ITS_BEGINNING,
    SENT,
    STATE_OF_TCP,
    address_text,
    checked_header,
    whole_rows,
)

MAX_FILES = 1 << 16
MAX_RANK = 1 << 20
_NAME = re.compile(r"(rank-\d{5,7}|process)\.wire-\d+-[0-9a-f]+\.(bin|wire\.gz)", re.ASCII)


@dataclass(frozen=True, kw_only=True, eq=False)
class Ends(Table):
    """One row a connection, as this process saw it."""

    opened_ns: I8 = column("<i8")
    closed_ns: I8 = column("<i8")
    """NONE: open."""
    sent_bytes: I8 = column("<i8")
    received_bytes: I8 = column("<i8")
    is_late: U1 = column("<u1")
    is_inherited: U1 = column("<u1")


@dataclass(frozen=True, kw_only=True, eq=False)
class Calls(Table):
    """One row a call that moved bytes, sorted by (connection, kind, position); in one connection
    and direction no two have a byte in common."""

    connection: I4 = column("<i4")
    kind: U1 = column("<u1")
    start_ns: I8 = column("<i8")
    end_ns: I8 = column("<i8")
    position: I8 = column("<i8")
    refused_ns: I8 = column("<i8")
    """Since when the kernel had refused; 0: it had not."""
    asked: I8 = column("<i8")
    done: I8 = column("<i8")
    thread: I8 = column("<i8")

    def of(self, connection: int, kind: int) -> Calls:
        key = self.connection.astype(np.int64) * 2 + self.kind
        first, last = np.searchsorted(key, [2 * connection + kind, 2 * connection + kind + 1])
        return self.taken(slice(int(first), int(last)))

    def taken(self, rows: Any) -> Calls:
        return Calls(**{name: values[rows] for name, values in self.columns()})


@dataclass(frozen=True, kw_only=True, eq=False)
class TcpStates(Table):
    connection: I4 = column("<i4")
    at_ns: I8 = column("<i8")
    retransmits: I8 = column("<i8")
    unacked: I8 = column("<i8")
    rtt_ns: I8 = column("<i8")
    window: I8 = column("<i8")
    min_rtt_ns: I8 = column("<i8")


@dataclass(frozen=True, slots=True, kw_only=True)
class WireFile:
    """Times are by the host's own clock."""

    name: str
    pid: int
    rank: int
    host: str
    started_ns: int
    ends: Ends
    own: list[str]
    """Addresses of the ends, as ``10.0.0.1:4711`` or ``[::1]:4711``."""
    peer: list[str]
    calls: Calls
    states: TcpStates
    calls_written_over: int
    calls_not_kept: int
    bytes_not_kept: int
    connections_lost: int


def read_wire_files(folder: Path, ledger: Ledger) -> list[WireFile]:
    """By rank, those without one last. Of a file that is there twice the unpacked one is taken,
    which may know more."""
    of_stem: dict[str, list[Path]] = {}
    for path in sorted(folder.glob("*.wire-*")):
        if _NAME.fullmatch(path.name) and path.is_file():
            stem = path.name.removesuffix(".bin").removesuffix(".wire.gz")
            of_stem.setdefault(stem, []).append(path)
    found: list[WireFile] = []
    for paths in list(of_stem.values())[:MAX_FILES]:
        trouble = Ledger()
        for path in paths:
            file = _read(path, trouble)
            if file is not None:
                found.append(file)
                trouble = Ledger(a for a in trouble if a.name != "wire-unreadable")
                break
        for anomaly in trouble:
            ledger.add(anomaly)
    return sorted(found, key=lambda f: (f.rank < 0, f.rank, f.host, f.started_ns, f.pid))


def _read(path: Path, ledger: Ledger) -> WireFile | None:
    try:
        return decode(_content(path), path.name, ledger)
    except (InputError, OSError, ValueError) as error:
        ledger.note(
            "wire-unreadable",
            "what a process left of its socket calls cannot be read",
            severity=Severity.ERROR,
            remedy="record it again",
            example=f"{path.name}: {str(error)[:300]}",
        )
        return None


def _content(path: Path) -> NDArray[np.uint8]:
    """A file that is not packed is large and mostly empty: only what is used is looked at."""
    if path.name.endswith(".gz"):
        unpacked = read_unpacked(path, as_far_as_it_goes=True)
        return np.frombuffer(unpacked, dtype=np.uint8)
    if path.stat().st_size == 0:
        return np.empty(0, dtype=np.uint8)
    return np.memmap(path, dtype=np.uint8, mode="r")


def decode(data: NDArray[np.uint8], name: str, ledger: Ledger) -> WireFile:
    """Raises a ValueError where it is no such file at all."""
    header = checked_header(data)
    at = int(header["header"])
    num_connections = int(header["num_connections"])
    rows = data[at : at + num_connections * CONNECTION.itemsize]
    connections = whole_rows(rows, CONNECTION)
    at += int(header["max_connections"]) * CONNECTION.itemsize
    num_slots = min(int(header["num_events"]), int(header["max_events"]))
    slots = whole_rows(data[at : at + num_slots * EVENT.itemsize], EVENT)
    if len(connections) < num_connections or len(slots) < num_slots:
        ledger.note(
            "wire-truncated",
            "a process's record is cut off: what follows is not known",
            severity=Severity.ERROR,
            example=name,
        )
    written_over, events = _in_place(slots, header, name, ledger)
    host = bytes(header["host"]).partition(b"\0")[0].decode("utf-8", "replace")
    rank = int(header["rank"])
    return WireFile(
        name=name,
        pid=int(header["pid"]),
        rank=rank if 0 <= rank < MAX_RANK else NONE,
        host=host,
        started_ns=_capped(header["realtime_ns"]),
        ends=_ends(connections),
        own=[address_text(c["family"], c["own"], c["own_port"]) for c in connections],
        peer=[address_text(c["family"], c["peer"], c["peer_port"]) for c in connections],
        calls=_calls(events, len(connections), name, ledger),
        states=_states(events, len(connections)),
        calls_written_over=written_over,
        calls_not_kept=_capped(header["calls_not_kept"]),
        bytes_not_kept=_capped(header["bytes_not_kept"]),
        connections_lost=_capped(header["connections_lost"]),
    )


def _in_place(
    slots: NDArray[Any], header: Any, name: str, ledger: Ledger
) -> tuple[int, NDArray[Any]]:
    """How many were written over, and those that are whole, each where its number belongs."""
    number = slots["number"]
    num_events, max_events = int(header["num_events"]), max(1, int(header["max_events"]))
    sane = (number > 0) & (number <= num_events)
    if name.endswith(".bin"):
        sane &= (number - 1) % np.uint64(max_events) == np.arange(len(slots), dtype=np.uint64)
    else:
        # Packed in order: one that is not above all before it was not written by us.
        before = np.maximum.accumulate(np.concatenate([[np.uint64(0)], number[:-1]]))
        sane &= number > before[: len(number)]
    out_of_place = int(((number > 0) & ~sane).sum())
    _note_dropped(ledger, out_of_place, name)
    kept = slots[sane]
    written_over = int(kept["number"].min()) - 1 if len(kept) else 0
    half = int((number == 0).sum())
    ledger.note(
        "wire-half-written",
        "a process ended, or was looked at, while it noted a call",
        severity=Severity.INFO,
        count=half,
        example=name,
    )
    return written_over, kept


def _calls(events: NDArray[Any], num_connections: int, name: str, ledger: Ledger) -> Calls:
    moved = events[events["kind"] != STATE_OF_TCP]
    sane = (
        (moved["kind"] <= RECEIVED) & (moved["connection"] < num_connections)
        & (moved["start_ns"] <= moved["end_ns"]) & (moved["end_ns"] < MAX_TIME_NS)
        & (moved["refused_ns"] <= moved["start_ns"]) & (moved["position"] < MAX_POSITION)
        & (moved["done"] > 0) & (moved["done"] <= moved["asked"])
    )  # fmt: skip
    rows = moved[sane]
    key = rows["connection"].astype(np.int64) * 2 + rows["kind"]
    rows = rows[np.lexsort((rows["position"], key))]
    apart = _apart(rows)
    _note_dropped(ledger, len(moved) - int(apart.sum()), name)
    rows = rows[apart]
    return Calls(
        **{column: rows[column].astype(dtype, copy=False) for column, dtype in Calls.schema()}
    )


def _apart(rows: NDArray[Any]) -> NDArray[np.bool_]:
    """Those that begin where all that are believed before them, in their connection and direction,
    have ended."""
    apart = np.ones(len(rows), dtype=bool)
    if len(rows) < 2:
        return apart
    stream = rows["connection"].astype(np.int64) * 2 + rows["kind"]
    position = rows["position"].astype(np.int64)
    end = position + rows["done"].astype(np.int64)
    clashes = (stream[1:] == stream[:-1]) & (position[1:] < end[:-1])
    for one in np.unique(stream[1:][clashes]).tolist():
        first, last = np.searchsorted(stream, [one, one + 1])
        reached = -1
        for row in range(int(first), int(last)):
            apart[row] = position[row] >= reached
            if apart[row]:
                reached = int(end[row])
    return apart


def _states(events: NDArray[Any], num_connections: int) -> TcpStates:
    rows = events[
        (events["kind"] == STATE_OF_TCP)
        & (events["connection"] < num_connections)
        & (events["start_ns"] < MAX_TIME_NS)
    ]
    return TcpStates(
        connection=rows["connection"],
        at_ns=rows["start_ns"].astype(np.int64),
        retransmits=np.minimum(rows["position"], np.uint64(1 << 32)).astype(np.int64),
        unacked=np.minimum(rows["refused_ns"], np.uint64(1 << 32)).astype(np.int64),
        rtt_ns=rows["asked"].astype(np.int64) * 1000,
        window=rows["done"].astype(np.int64),
        min_rtt_ns=np.minimum(rows["extra"], np.uint64(1 << 32)).astype(np.int64) * 1000,
    )


def _ends(connections: NDArray[Any]) -> Ends:
    def capped(values: NDArray[Any], most: int) -> I8:
        return np.minimum(values, np.uint64(most)).astype(np.int64)

    closed = capped(connections["closed_ns"], MAX_TIME_NS)
    return Ends(
        opened_ns=capped(connections["opened_ns"], MAX_TIME_NS),
        closed_ns=np.where(closed > 0, closed, NONE),
        sent_bytes=capped(connections["bytes"][:, SENT], MAX_POSITION),
        received_bytes=capped(connections["bytes"][:, RECEIVED], MAX_POSITION),
        is_late=(connections["flags"] & SEEN_FROM_ITS_BEGINNING) == 0,
        is_inherited=(connections["flags"] & OF_THE_PARENT) != 0,
    )


def _capped(value: Any) -> int:
    return min(int(value), MAX_POSITION)


def _note_dropped(ledger: Ledger, count: int, name: str) -> None:
    ledger.note(
        "wire-damaged-calls",
        "a noted call cannot have been: it is left out",
        count=count,
        example=name,
    )
