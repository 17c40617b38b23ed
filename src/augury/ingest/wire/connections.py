"""Connections of a run, with the bytes that both ends counted."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from augury.core.graph.graph import NONE
from augury.core.ledger import Ledger, Severity
from augury.core.string_table import StringPool
from augury.core.wire import Connections
from augury.ingest.wire.pair_endpoints import End, Pair
from augury.ingest.wire.wire_file import WireFile

ToCommon = Callable[[int, int], int]
"""Converts a time on the clock of a file, by the file's number, to common time."""


def connections_of(
    files: Sequence[WireFile],
    pairs: Sequence[Pair],
    strings: StringPool,
    to_common: ToCommon,
    ledger: Ledger,
) -> Connections:
    tcp = [_tcp_readings(file) for file in files]
    rows: list[dict[str, int]] = []
    for a, b in pairs:
        file = files[a.file]
        both = [end for end in (a, b) if end is not None]
        opened = [to_common(end.file, int(files[end.file].ends.opened_ns[end.row])) for end in both]
        closed = [
            to_common(end.file, ns)
            for end in both
            if (ns := int(files[end.file].ends.closed_ns[end.row])) != NONE
        ]
        sent_a, received_a = _bytes(files, a)
        sent_b, received_b = _bytes(files, b)
        retransmits_a, rtt_a = tcp[a.file].get(a.row, (NONE, NONE))
        retransmits_b, rtt_b = tcp[b.file].get(b.row, (NONE, NONE)) if b else (NONE, NONE)
        rows.append(
            {
                "process_a": a.file,
                "process_b": b.file if b is not None else NONE,
                "address_a": strings.number(file.own[a.row]),
                "address_b": strings.number(file.peer[a.row]),
                "opened_ns": min(opened),
                "closed_ns": min(closed, default=NONE),
                "sent_a": sent_a,
                "received_b": received_b,
                "sent_b": sent_b,
                "received_a": received_a,
                "retransmits_a": retransmits_a,
                "retransmits_b": retransmits_b,
                "rtt_ns": min((ns for ns in (rtt_a, rtt_b) if ns > 0), default=NONE),
                "is_late": _is_late(files, a, b),
            }
        )
    _note(rows, ledger)
    if not rows:
        return Connections.empty()
    return Connections(**{name: np.array([row[name] for row in rows]) for name in rows[0]})


def _tcp_readings(file: WireFile) -> dict[int, tuple[int, int]]:
    """Retransmissions and shortest round trip of each connection with readings of ``TCP_INFO``."""
    states = file.states
    found: dict[int, tuple[int, int]] = {}
    for row in np.unique(states.connection).tolist():
        own = states.connection == row
        rtt = states.min_rtt_ns[own]
        known = rtt[rtt > 0]
        found[row] = (int(states.retransmits[own].max()), int(known.min()) if len(known) else NONE)
    return found


def _bytes(files: Sequence[WireFile], end: End | None) -> tuple[int, int]:
    if end is None:
        return NONE, NONE
    ends = files[end.file].ends
    return int(ends.sent_bytes[end.row]), int(ends.received_bytes[end.row])


def _is_late(files: Sequence[WireFile], a: End, b: End | None) -> int:
    """A connection that was opened without blocking seems late at its own end; it is not if both
    ends count the same bytes."""
    late = [
        end
        for end in (a, b)
        if end is not None
        and (files[end.file].ends.is_late[end.row] or files[end.file].ends.is_inherited[end.row])
    ]
    return int(bool(late) and (b is None or _bytes(files, a) != _bytes(files, b)[::-1]))


def _note(rows: Sequence[dict[str, int]], ledger: Ledger) -> None:
    whole = [row for row in rows if row["process_b"] != NONE and not row["is_late"]]
    unequal = [
        row
        for row in whole
        if row["sent_a"] != row["received_b"] or row["sent_b"] != row["received_a"]
    ]
    lost = sum(
        abs(row[sent] - row[received])
        for row in unequal
        for sent, received in (("sent_a", "received_b"), ("sent_b", "received_a"))
    )
    ledger.note(
        "wire-unequal-bytes",
        "the ends of a connection count different bytes; some were in flight or not read",
        severity=Severity.INFO,
        count=len(unequal),
        example=f"{lost:,} bytes in all" if unequal else "",
    )
    ledger.note(
        "wire-late-connection",
        "a connection was open before recording began; its bytes are counted from then on",
        severity=Severity.INFO,
        count=sum(row["is_late"] for row in rows),
    )
    ledger.note(
        "wire-open-connection",
        "a connection was open when the record ended",
        severity=Severity.INFO,
        count=sum(row["closed_ns"] == NONE for row in rows),
    )
