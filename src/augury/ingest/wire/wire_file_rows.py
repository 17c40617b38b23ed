"""Layout of a wire recorder's file, and its rows as tables; docs/wire.md describes the layout."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from augury.core.columns import I4, I8, U1, Table, column
from augury.core.graph.graph import NONE
from augury.core.ledger import Ledger, Severity

SENT, RECEIVED, STATE_OF_TCP = 0, 1, 2
SEEN_FROM_ITS_BEGINNING, OF_THE_PARENT = 1, 4
MAX_CONNECTIONS = 1 << 16
MAX_SLOTS = 1 << 26
MAX_TIME_NS = 3 * 10**18
MAX_POSITION = 1 << 62
_MAGIC, _VERSION = b"AUGWIRE1", 1
_MAX_HEADER_BYTES = 1 << 16
_MAX_READING = np.uint64(1 << 32)

HEADER = np.dtype(
    [
        ("magic", "S8"),
        *((name, "<u4") for name in ("version", "header", "connection", "event")),
        *((name, "<u8") for name in ("max_connections", "max_events")),
        *((name, "<u8") for name in ("num_connections", "num_events", "connections_lost")),
        *((name, "<u8") for name in ("is_kept", "calls_not_kept", "bytes_not_kept")),
        *(("pid", "<i8"), ("rank", "<i8"), ("realtime_ns", "<u8"), ("monotonic_ns", "<u8")),
        ("host", "S64"),
    ]
)
CONNECTION = np.dtype(
    [
        *((name, "<u8") for name in ("opened_ns", "closed_ns")),
        *((name, "<u8", 2) for name in ("bytes", "calls")),
        ("inode", "<u8"),
        ("refused_ns", "<u8", 2),
        ("info_ns", "<u8"),
        *((name, "<u4") for name in ("family", "flags", "num_fds")),
        *((name, "<u2") for name in ("own_port", "peer_port")),
        *((name, "V16") for name in ("own", "peer")),
    ]
)
EVENT = np.dtype(
    [
        *((name, "<u8") for name in ("number", "start_ns", "end_ns", "position", "refused_ns")),
        *((name, "<u4") for name in ("asked", "done", "thread")),
        *(("connection", "<u2"), ("kind", "<u1"), ("reserved", "<u1"), ("extra", "<u8")),
    ]
)


@dataclass(frozen=True, kw_only=True, eq=False)
class Ends(Table):
    """Ends of connections in one process, one row per connection."""

    opened_ns: I8 = column("<i8")
    closed_ns: I8 = column("<i8")
    """NONE while open."""
    sent_bytes: I8 = column("<i8")
    received_bytes: I8 = column("<i8")
    is_late: U1 = column("<u1")
    """The recorder saw the connection only after it had been opened."""
    is_inherited: U1 = column("<u1")


@dataclass(frozen=True, kw_only=True, eq=False)
class Calls(Table):
    """Calls that moved bytes, sorted by (connection, kind, position). Within one connection and
    direction no two calls have a byte in common."""

    connection: I4 = column("<i4")
    kind: U1 = column("<u1")
    start_ns: I8 = column("<i8")
    end_ns: I8 = column("<i8")
    position: I8 = column("<i8")
    refused_ns: I8 = column("<i8")
    """Time since which the kernel had refused the call; 0 if it had not."""
    asked: I8 = column("<i8")
    done: I8 = column("<i8")
    thread: I8 = column("<i8")


@dataclass(frozen=True, kw_only=True, eq=False)
class TcpStates(Table):
    """Readings of ``TCP_INFO``."""

    connection: I4 = column("<i4")
    at_ns: I8 = column("<i8")
    retransmits: I8 = column("<i8")
    unacked: I8 = column("<i8")
    rtt_ns: I8 = column("<i8")
    window: I8 = column("<i8")
    min_rtt_ns: I8 = column("<i8")


def checked_header(data: NDArray[np.uint8]) -> Any:
    """Raises a ValueError if the file has another format or impossible sizes."""
    if len(data) < HEADER.itemsize:
        raise ValueError("it is too short")
    header = np.frombuffer(data[: HEADER.itemsize].tobytes(), dtype=HEADER)[0]
    if header["magic"] != _MAGIC:
        raise ValueError("it is no record of socket calls")
    if header["version"] != _VERSION:
        raise ValueError(f"its version is {header['version']}; only version {_VERSION} is known")
    sizes = (int(header["connection"]), int(header["event"]))
    if sizes != (CONNECTION.itemsize, EVENT.itemsize):
        raise ValueError("its rows have wrong sizes")
    if not HEADER.itemsize <= int(header["header"]) <= _MAX_HEADER_BYTES:
        raise ValueError("its header has a wrong size")
    if int(header["max_connections"]) > MAX_CONNECTIONS or int(header["max_events"]) > MAX_SLOTS:
        raise ValueError("its header states more rows than are allowed")
    if int(header["num_connections"]) > int(header["max_connections"]):
        raise ValueError("its header states more connections than there are rows for")
    return header


def whole_rows(data: NDArray[np.uint8], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Rows of ``data``, without a last one that is cut off."""
    usable = len(data) // dtype.itemsize * dtype.itemsize
    return np.frombuffer(data[:usable].tobytes(), dtype=dtype)


def address_text(family: int, address: np.void, port: int) -> str:
    raw = address.tobytes()
    if family == 4:
        return f"{ipaddress.IPv4Address(raw[:4])}:{port}"
    return f"[{ipaddress.IPv6Address(raw)}]:{port}"


def valid_slots(
    slots: NDArray[Any], header: Any, name: str, ledger: Ledger
) -> tuple[int, NDArray[Any]]:
    """Returns the number of overwritten events, and the events that are complete and stand in the
    slot of their number."""
    number = slots["number"]
    num_events, max_events = int(header["num_events"]), max(1, int(header["max_events"]))
    is_valid = (number > 0) & (number <= num_events)
    if name.endswith(".bin"):
        slot = np.arange(len(slots), dtype=np.uint64)
        is_valid &= (number - 1) % np.uint64(max_events) == slot
    else:
        # A packed file is in order of numbers; the recorder never writes a smaller one after.
        before = np.maximum.accumulate(np.concatenate([[np.uint64(0)], number[:-1]]))
        is_valid &= number > before[: len(number)]
    _note_dropped(ledger, int(((number > 0) & ~is_valid).sum()), name)
    kept = slots[is_valid]
    num_overwritten = int(kept["number"].min()) - 1 if len(kept) else 0
    ledger.note(
        "wire-half-written",
        "a call is incomplete: its process ended, or was read, while it was being written",
        severity=Severity.INFO,
        count=int((number == 0).sum()),
        example=name,
    )
    return num_overwritten, kept


def calls_of(events: NDArray[Any], num_connections: int, name: str, ledger: Ledger) -> Calls:
    """Calls among ``events``; impossible ones are dropped and counted."""
    moved = events[events["kind"] != STATE_OF_TCP]
    is_valid = (
        (moved["kind"] <= RECEIVED) & (moved["connection"] < num_connections)
        & (moved["start_ns"] <= moved["end_ns"]) & (moved["end_ns"] < MAX_TIME_NS)
        & (moved["refused_ns"] <= moved["start_ns"]) & (moved["position"] < MAX_POSITION)
        & (moved["done"] > 0) & (moved["done"] <= moved["asked"])
    )  # fmt: skip
    rows = moved[is_valid]
    key = rows["connection"].astype(np.int64) * 2 + rows["kind"]
    rows = rows[np.lexsort((rows["position"], key))]
    is_disjoint = _are_disjoint(rows)
    _note_dropped(ledger, len(moved) - int(is_disjoint.sum()), name)
    rows = rows[is_disjoint]
    return Calls(
        **{column: rows[column].astype(dtype, copy=False) for column, dtype in Calls.schema()}
    )


def _are_disjoint(rows: NDArray[Any]) -> NDArray[np.bool_]:
    """Whether each row begins at or after the end of all accepted rows before it in its connection
    and direction."""
    is_disjoint = np.ones(len(rows), dtype=bool)
    if len(rows) < 2:
        return is_disjoint
    stream = rows["connection"].astype(np.int64) * 2 + rows["kind"]
    position = rows["position"].astype(np.int64)
    end = position + rows["done"].astype(np.int64)
    overlaps = (stream[1:] == stream[:-1]) & (position[1:] < end[:-1])
    for one in np.unique(stream[1:][overlaps]).tolist():
        first, last = np.searchsorted(stream, [one, one + 1])
        reached = -1
        for row in range(int(first), int(last)):
            is_disjoint[row] = position[row] >= reached
            if is_disjoint[row]:
                reached = int(end[row])
    return is_disjoint


def states_of(events: NDArray[Any], num_connections: int) -> TcpStates:
    """Readings of ``TCP_INFO`` among ``events``."""
    rows = events[
        (events["kind"] == STATE_OF_TCP)
        & (events["connection"] < num_connections)
        & (events["start_ns"] < MAX_TIME_NS)
    ]
    return TcpStates(
        connection=rows["connection"],
        at_ns=rows["start_ns"].astype(np.int64),
        retransmits=np.minimum(rows["position"], _MAX_READING).astype(np.int64),
        unacked=np.minimum(rows["refused_ns"], _MAX_READING).astype(np.int64),
        rtt_ns=rows["asked"].astype(np.int64) * 1000,
        window=rows["done"].astype(np.int64),
        min_rtt_ns=np.minimum(rows["extra"], _MAX_READING).astype(np.int64) * 1000,
    )


def ends_of(connections: NDArray[Any]) -> Ends:
    def capped(values: NDArray[Any], most: int) -> I8:
        found: I8 = np.minimum(values, np.uint64(most)).astype(np.int64)
        return found

    closed_ns = capped(connections["closed_ns"], MAX_TIME_NS)
    return Ends(
        opened_ns=capped(connections["opened_ns"], MAX_TIME_NS),
        closed_ns=np.where(closed_ns > 0, closed_ns, NONE),
        sent_bytes=capped(connections["bytes"][:, SENT], MAX_POSITION),
        received_bytes=capped(connections["bytes"][:, RECEIVED], MAX_POSITION),
        is_late=(connections["flags"] & SEEN_FROM_ITS_BEGINNING) == 0,
        is_inherited=(connections["flags"] & OF_THE_PARENT) != 0,
    )


def _note_dropped(ledger: Ledger, count: int, name: str) -> None:
    ledger.note(
        "wire-damaged-calls",
        "a recorded call is impossible and is left out",
        count=count,
        example=name,
    )
