"""From what processes left of their socket calls to how their clocks go."""

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
from augury.ingest.wire.recorder_files.file_layout import RECEIVED, SENT
from augury.ingest.wire.recorder_files.wire_file import WireFile, read_wire_files


def clocks_of_files(
    files: Sequence[WireFile], pairs: Sequence[Pair], ledger: Ledger, *, reference: int = 0
) -> dict[int, Clock]:
    """By the place of each file in the list: how to lead its clock to that of ``reference``.
    Where the wire does not tell, it is left out."""
    bounds = wire_bounds(flows(files, pairs), [file.host for file in files], ledger)
    clocks = align_wire(bounds, reference, ledger)
    lost = [file for number, file in enumerate(files) if file.rank >= 0 and number not in clocks]
    ledger.note(
        "clock-not-on-wire",
        "no traffic that goes both ways joins a rank to the first rank's host",
        severity=Severity.INFO,
        count=len(lost),
        example=f"rank {lost[0].rank} on {lost[0].host[:64]}" if lost else "",
    )
    return clocks


def clocks_of_ranks(
    folder: Path, first_rank: int, ledger: Ledger, budget: ReadBudget | None = None
) -> dict[int, Clock]:
    """What the wire tells of each rank's clock, compared with the first one's; of ranks on its
    host that is nothing. Whatever is wrong with the files is told where their calls are read."""
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
    """Both directions of every connection whose bytes both ends count from the same one on."""
    where = [_first_rows(file) for file in files]
    for a, b in pairs:
        if b is None:
            continue
        for sender, receiver in ((a, b), (b, a)):
            if not _count_alike(files, sender, receiver):
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


def _count_alike(files: Sequence[WireFile], sender: End, receiver: End) -> bool:
    """An end that was seen late may have missed bytes; not if in the end all is accounted for."""
    there, here = files[sender.file].ends, files[receiver.file].ends
    missing = int(there.sent_bytes[sender.row]) - int(here.received_bytes[receiver.row])
    is_from_the_first = not (
        there.is_late[sender.row]
        or there.is_inherited[sender.row]
        or here.is_late[receiver.row]
        or here.is_inherited[receiver.row]
    )
    return missing == 0 or (is_from_the_first and missing > 0)


def _first_rows(file: WireFile) -> list[int]:
    """Of each connection and direction; calls are sorted by them."""
    key = file.calls.connection.astype(np.int64) * 2 + file.calls.kind
    first: list[int] = np.searchsorted(key, np.arange(2 * len(file.ends) + 1)).tolist()
    return first


def _rows(where: Sequence[list[int]], end: End, kind: int) -> slice:
    first = where[end.file]
    return slice(first[2 * end.row + kind], first[2 * end.row + kind + 1])
