"""Clocks of processes and ranks from the socket calls that they recorded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from augury.core.ledger import Ledger, Severity
from augury.core.trace.trace import Clock
from augury.ingest.run_files import ReadBudget
from augury.ingest.wire.clocks.clock_bounds import Flow, wire_bounds
from augury.ingest.wire.clocks.wire_clocks import align_wire
from augury.ingest.wire.pair_endpoints import End, Pair, pair_ends
from augury.ingest.wire.wire_file import WireFile, read_wire_files
from augury.ingest.wire.wire_file_rows import RECEIVED, SENT


def clocks_of_files(
    files: Sequence[WireFile], pairs: Sequence[Pair], ledger: Ledger, *, reference: int = 0
) -> dict[int, Clock]:
    """Returns the clock of each file, by its index, relative to the file ``reference``. Files that
    messages do not connect to it are left out."""
    bounds = wire_bounds(flows(files, pairs), [file.host for file in files], ledger)
    clocks = align_wire(bounds, reference, ledger)
    unconnected = [
        file for number, file in enumerate(files) if file.rank >= 0 and number not in clocks
    ]
    ledger.note(
        "clock-not-on-wire",
        "no two-way traffic connects a rank to the host of the first rank",
        severity=Severity.INFO,
        count=len(unconnected),
        example=f"rank {unconnected[0].rank} on {unconnected[0].host[:64]}" if unconnected else "",
    )
    return clocks


def clocks_of_ranks(
    folder: Path, first_rank: int, ledger: Ledger, budget: ReadBudget | None = None
) -> dict[int, Clock]:
    """Returns the clock of each rank relative to the first rank; ranks on its host are left out.
    Problems of the files are noted elsewhere, where messages are read."""
    aside = Ledger()
    files = read_wire_files(folder, aside, budget)
    reference = next((i for i, file in enumerate(files) if file.rank == first_rank), None)
    if reference is None or len(files) == 1:
        return {}
    clocks = clocks_of_files(files, pair_ends(files, aside), ledger, reference=reference)
    found: dict[int, Clock] = {}
    for number, clock in clocks.items():
        if files[number].rank >= 0 and clock.source == "wire":
            found.setdefault(files[number].rank, clock)
    return found


def flows(files: Sequence[WireFile], pairs: Sequence[Pair]) -> Iterator[Flow]:
    """Yields both directions of every connection whose ends count from the same byte."""
    where = [_first_rows(file) for file in files]
    for a, b in pairs:
        if b is None:
            continue
        for sender, receiver in ((a, b), (b, a)):
            if not _count_from_same_byte(files, sender, receiver):
                continue
            sent, received = _rows(where, sender, SENT), _rows(where, receiver, RECEIVED)
            there, here = files[sender.file].calls, files[receiver.file].calls
            yield Flow(
                sender=sender.file,
                receiver=receiver.file,
                sent_position=there.position[sent],
                sent_bytes=there.done[sent],
                sent_ns=there.start_ns[sent],
                received_position=here.position[received],
                received_bytes=here.done[received],
                received_ns=here.end_ns[received],
            )


def _count_from_same_byte(files: Sequence[WireFile], sender: End, receiver: End) -> bool:
    """An end that was seen late may have missed bytes, unless the totals of both ends agree."""
    there, here = files[sender.file].ends, files[receiver.file].ends
    missing = int(there.sent_bytes[sender.row]) - int(here.received_bytes[receiver.row])
    is_from_beginning = not (
        there.is_late[sender.row]
        or there.is_inherited[sender.row]
        or here.is_late[receiver.row]
        or here.is_inherited[receiver.row]
    )
    return missing == 0 or (is_from_beginning and missing > 0)


def _first_rows(file: WireFile) -> list[int]:
    """First row of each connection and direction, by which calls are sorted."""
    key = file.calls.connection.astype(np.int64) * 2 + file.calls.kind
    first: list[int] = np.searchsorted(key, np.arange(2 * len(file.ends) + 1)).tolist()
    return first


def _rows(where: Sequence[list[int]], end: End, kind: int) -> slice:
    first = where[end.file]
    return slice(first[2 * end.row + kind], first[2 * end.row + kind + 1])
