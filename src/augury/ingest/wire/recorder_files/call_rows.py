"""Rows of a process's record: which can have been, and what they say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from augury.core.columns import I4, I8, U1, Table, column
from augury.core.graph.graph import NONE
from augury.core.ledger import Ledger, Severity
from augury.ingest.wire.recorder_files.file_layout import (
    MAX_POSITION,
    MAX_TIME_NS,
    OF_THE_PARENT,
    RECEIVED,
    SEEN_FROM_ITS_BEGINNING,
    SENT,
    STATE_OF_TCP,
)


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


@dataclass(frozen=True, kw_only=True, eq=False)
class TcpStates(Table):
    connection: I4 = column("<i4")
    at_ns: I8 = column("<i8")
    retransmits: I8 = column("<i8")
    unacked: I8 = column("<i8")
    rtt_ns: I8 = column("<i8")
    window: I8 = column("<i8")
    min_rtt_ns: I8 = column("<i8")


def in_place(
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


def calls_of(events: NDArray[Any], num_connections: int, name: str, ledger: Ledger) -> Calls:
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


def states_of(events: NDArray[Any], num_connections: int) -> TcpStates:
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


def ends_of(connections: NDArray[Any]) -> Ends:
    def capped(values: NDArray[Any], most: int) -> I8:
        found: I8 = np.minimum(values, np.uint64(most)).astype(np.int64)
        return found

    closed = capped(connections["closed_ns"], MAX_TIME_NS)
    return Ends(
        opened_ns=capped(connections["opened_ns"], MAX_TIME_NS),
        closed_ns=np.where(closed > 0, closed, NONE),
        sent_bytes=capped(connections["bytes"][:, SENT], MAX_POSITION),
        received_bytes=capped(connections["bytes"][:, RECEIVED], MAX_POSITION),
        is_late=(connections["flags"] & SEEN_FROM_ITS_BEGINNING) == 0,
        is_inherited=(connections["flags"] & OF_THE_PARENT) != 0,
    )


def _note_dropped(ledger: Ledger, count: int, name: str) -> None:
    ledger.note(
        "wire-damaged-calls",
        "a noted call cannot have been: it is left out",
        count=count,
        example=name,
    )
