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
from augury.core.graph.graph import NONE
from augury.core.ledger import Ledger, Severity
from augury.ingest.formats.gzip_reader import read_unpacked
from augury.ingest.run_files import ReadBudget, RunLimitError, used_bytes
from augury.ingest.wire.recorder_files.call_rows import (
    Calls,
    Ends,
    TcpStates,
    calls_of,
    ends_of,
    in_place,
    states_of,
)
from augury.ingest.wire.recorder_files.file_layout import (
    CONNECTION,
    EVENT,
    MAX_POSITION,
    address_text,
    checked_header,
    whole_rows,
)

MAX_FILES = 1 << 16
MAX_RANK = 1 << 20
_NAME = re.compile(r"(rank-\d{5,7}|process)\.wire-\d+-[0-9a-f]+\.(bin|wire\.gz)", re.ASCII)


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


def read_wire_files(
    folder: Path, ledger: Ledger, budget: ReadBudget | None = None
) -> list[WireFile]:
    """By rank, those without one last. Of a file that is there twice the unpacked one is taken,
    which may know more."""
    budget = budget or ReadBudget(folder)
    of_stem: dict[str, list[Path]] = {}
    for path in sorted(folder.glob("*.wire-*")):
        if _NAME.fullmatch(path.name) and path.is_file():
            stem = path.name.removesuffix(".bin").removesuffix(".wire.gz")
            of_stem.setdefault(stem, []).append(path)
    found: list[WireFile] = []
    for paths in list(of_stem.values())[:MAX_FILES]:
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
            "what a process left of its socket calls cannot be read",
            severity=Severity.ERROR,
            remedy="record it again",
            example=f"{path.name}: {str(error)[:300]}",
        )
        return None


def _content(path: Path, budget: ReadBudget) -> NDArray[np.uint8]:
    """A file that is not packed is large and mostly empty: only what is used is looked at."""
    if path.name.endswith(".gz"):
        unpacked = read_unpacked(path, as_far_as_it_goes=True, budget=budget)
        return np.frombuffer(unpacked, dtype=np.uint8)
    budget.take(used_bytes(path))
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
    written_over, events = in_place(slots, header, name, ledger)
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
        calls_written_over=written_over,
        calls_not_kept=_capped(header["calls_not_kept"]),
        bytes_not_kept=_capped(header["bytes_not_kept"]),
        connections_lost=_capped(header["connections_lost"]),
    )


def _capped(value: Any) -> int:
    return min(int(value), MAX_POSITION)
