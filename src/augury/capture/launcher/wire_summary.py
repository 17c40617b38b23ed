"""Summary of recorded TCP traffic, from the headers of its files, which are untrusted input."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from pathlib import Path

from augury.capture.process_identity import rank_name
from augury.capture.wire.pack import NAME, PACKED, RAW, WireHeader, wire_header_of
from augury.core.ledger import Ledger, Severity
from augury.core.results.recorded_run import WireSummary


def summarize_wire(
    folder: Path, ledger: Ledger, *, rank: int | None = None, expected: Iterable[int] = ()
) -> WireSummary:
    """Summarizes the whole folder, or one rank. ``expected`` are ranks that must have traffic."""
    prefix = "*" if rank is None else rank_name(rank)
    stems = sorted(
        {
            path.name.removesuffix(name["end"])
            for path in folder.glob(f"{prefix}.wire-*")
            if (name := NAME.fullmatch(path.name)) is not None and path.is_file()
        }
    )
    headers = [header for stem in stems if (header := _read(folder, stem, ledger)) is not None]
    silent = sorted(set(expected) - {header.rank for header in headers})
    ledger.note(
        "no-wire",
        "a rank left no record of its TCP traffic",
        count=len(silent),
        severity=Severity.ERROR,
        remedy="run `augury doctor` on its host, and check the free space there",
        example=f"rank {silent[0]}" if silent else "",
    )
    overwritten = [(_num_overwritten(header), header) for header in headers]
    worst, worst_header = max(overwritten, key=lambda pair: pair[0], default=(0, None))
    num_overwritten = sum(number for number, _ in overwritten)
    ledger.note(
        "wire-written-over",
        "later calls overwrote earlier ones, of which only the bytes are known",
        count=num_overwritten,
        remedy="keep more with --wire-events, or record shorter windows",
        example=f"{worst} of process {worst_header.pid}" if worst_header is not None else "",
    )
    connections_lost = sum(header.connections_lost for header in headers)
    ledger.note(
        "wire-connections-lost",
        "a process had more connections than the table holds: the others are not recorded",
        count=connections_lost,
    )
    return WireSummary(
        num_processes=len(headers),
        num_connections=sum(header.num_connections for header in headers),
        num_events=sum(header.num_events for header in headers) - num_overwritten,
        events_written_over=num_overwritten,
        calls_not_kept=sum(header.calls_not_kept for header in headers),
        connections_lost=connections_lost,
    )


def _num_overwritten(header: WireHeader) -> int:
    return max(0, header.num_events - header.max_events)


def _read(folder: Path, stem: str, ledger: Ledger) -> WireHeader | None:
    """Reads the raw file, which is newer, or the packed one."""
    error: Exception = FileNotFoundError()
    for end in (RAW, PACKED):
        try:
            return wire_header_of(folder / f"{stem}{end}")
        except FileNotFoundError:
            continue
        except (OSError, EOFError, ValueError, zlib.error) as found:
            error = found
    ledger.note(
        "unreadable-wire",
        "a record of TCP traffic cannot be read",
        severity=Severity.ERROR,
        example=f"{stem}: {error}",
    )
    return None
