"""Reads the socket calls that one process recorded: ``*.wire-*.bin``, or packed ``*.wire.gz``.

The process may have been killed or still be writing, and the file may be cut off or forged. Rows
that do not fit are left out and counted.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from augury.core.errors import InputError
from augury.core.graph.graph import NONE
from augury.core.ledger import Ledger, Severity
from augury.ingest.formats.gzip_reader import read_unpacked
from augury.ingest.run_files import ReadBudget, RunLimitError, used_bytes
from augury.ingest.wire.wire_file_rows import (
    CONNECTION,
    EVENT,
    MAX_POSITION,
    Calls,
    Ends,
    TcpStates,
    address_text,
    calls_of,
    checked_header,
    ends_of,
    states_of,
    valid_slots,
    whole_rows,
)

MAX_FILES = 1 << 16
MAX_RANK = 1 << 20
_NAME = re.compile(r"(rank-\d{5,7}|process)\.wire-\d+-[0-9a-f]+\.(bin|wire\.gz)", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class WireFile:
    """Connections and calls of one process; times are on the clock of its host."""

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


def read_wire_files(
    folder: Path, ledger: Ledger, budget: ReadBudget | None = None
) -> list[WireFile]:
    """Returns the files in order of ranks, processes without a rank last. Of a file that exists
    packed and unpacked the unpacked one is read, because it may be newer."""
    budget = budget or ReadBudget(folder)
    by_stem: dict[str, list[Path]] = {}
    for path in sorted(folder.glob("*.wire-*")):
        if _NAME.fullmatch(path.name) and path.is_file():
            stem = path.name.removesuffix(".bin").removesuffix(".wire.gz")
            by_stem.setdefault(stem, []).append(path)
    found: list[WireFile] = []
    for paths in list(by_stem.values())[:MAX_FILES]:
        trouble = Ledger()
        for path in paths:
            file = _read(path, trouble, budget)
            if file is not None:
                found.append(file)
                trouble = Ledger(a for a in trouble if a.name != "wire-unreadable")
                break
        for anomaly in trouble:
            ledger.add(anomaly)
    return sorted(found, key=lambda f: (f.rank < 0, f.rank, f.host, f.started_ns, f.pid))


def _read(path: Path, ledger: Ledger, budget: ReadBudget) -> WireFile | None:
    try:
        return decode(_content(path, budget), path.name, ledger)
    except RunLimitError:
        raise
    except (InputError, OSError, ValueError) as error:
        ledger.note(
            "wire-unreadable",
            "a record of socket calls cannot be read",
            severity=Severity.ERROR,
            remedy="record it again",
            example=f"{path.name}: {str(error)[:300]}",
        )
        return None


def _content(path: Path, budget: ReadBudget) -> NDArray[np.uint8]:
    """An unpacked file is large and sparse: it is mapped, and only its used part is read."""
    if path.name.endswith(".gz"):
        unpacked = read_unpacked(path, allow_truncated=True, budget=budget)
        return np.frombuffer(unpacked, dtype=np.uint8)
    budget.take(used_bytes(path))
    if path.stat().st_size == 0:
        return np.empty(0, dtype=np.uint8)
    return np.memmap(path, dtype=np.uint8, mode="r")


def decode(data: NDArray[np.uint8], name: str, ledger: Ledger) -> WireFile:
    """Raises a ValueError if ``data`` has another format."""
    header = checked_header(data)
    offset = int(header["header"])
    num_connections = int(header["num_connections"])
    rows = data[offset : offset + num_connections * CONNECTION.itemsize]
    connections = whole_rows(rows, CONNECTION)
    offset += int(header["max_connections"]) * CONNECTION.itemsize
    num_slots = min(int(header["num_events"]), int(header["max_events"]))
    slots = whole_rows(data[offset : offset + num_slots * EVENT.itemsize], EVENT)
    if len(connections) < num_connections or len(slots) < num_slots:
        ledger.note(
            "wire-truncated",
            "a record of socket calls is cut off; its end is missing",
            severity=Severity.ERROR,
            example=name,
        )
    num_overwritten, events = valid_slots(slots, header, name, ledger)
    host = bytes(header["host"]).partition(b"\0")[0].decode("utf-8", "replace")
    rank = int(header["rank"])
    return WireFile(
        name=name,
        pid=int(header["pid"]),
        rank=rank if 0 <= rank < MAX_RANK else NONE,
        host=host,
        started_ns=_capped(header["realtime_ns"]),
        ends=ends_of(connections),
        own=[address_text(c["family"], c["own"], c["own_port"]) for c in connections],
        peer=[address_text(c["family"], c["peer"], c["peer_port"]) for c in connections],
        calls=calls_of(events, len(connections), name, ledger),
        states=states_of(events, len(connections)),
        calls_written_over=num_overwritten,
        calls_not_kept=_capped(header["calls_not_kept"]),
        bytes_not_kept=_capped(header["bytes_not_kept"]),
        connections_lost=_capped(header["connections_lost"]),
    )


def _capped(value: Any) -> int:
    return min(int(value), MAX_POSITION)
