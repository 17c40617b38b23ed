"""What was recorded of the wire, told from the headers of its files, which may be anything."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from pathlib import Path

from augury.capture.rank_record import rank_name
from augury.capture.wire.pack import NAME, PACKED, RAW, WireHeader, wire_header_of
from augury.core.ledger import Ledger, Severity
from augury.core.results.recorded_run import WireSummary


def summarize_wire(
    folder: Path, ledger: Ledger, *, rank: int | None = None, expected: Iterable[int] = ()
) -> WireSummary:
    """Of the whole folder, or of one rank. ``expected`` are ranks that must have talked."""
    who = "*" if rank is None else rank_name(rank)
    stems = sorted(
        {
            path.name.removesuffix(name["end"])
            for path in folder.glob(f"{who}.wire-*")
            if (name := NAME.fullmatch(path.name)) is not None and path.is_file()
        }
    )
    headers = [header for stem in stems if (header := _read(folder, stem, ledger)) is not None]
    silent = sorted(set(expected) - {header.rank for header in headers})
    ledger.note(
        "no-wire",
        "a rank left no record of the wire",
        count=len(silent),
        severity=Severity.ERROR,
        remedy="see whether `augury doctor` finds the recorder well there, and space enough",
        example=f"rank {silent[0]}" if silent else "",
    )
    over = [(_written_over(header), header) for header in headers]
    worst, of = max(over, key=lambda pair: pair[0], default=(0, None))
    ledger.note(
        "wire-written-over",
        "later calls took the place of earlier ones, of which only the bytes are known",
        count=sum(lost for lost, _ in over),
        remedy="keep more with --wire-events, or record shorter windows",
        example=f"{worst} of process {of.pid}" if of is not None else "",
    )
    connections_lost = sum(header.connections_lost for header in headers)
    ledger.note(
        "wire-connections-lost",
        "a process had more connections than there was place for: nothing is known of the others",
        count=connections_lost,
    )
    return WireSummary(
        num_processes=len(headers),
        num_connections=sum(header.num_connections for header in headers),
        num_events=sum(header.num_events for header in headers) - sum(lost for lost, _ in over),
        events_written_over=sum(lost for lost, _ in over),
        calls_not_kept=sum(header.calls_not_kept for header in headers),
        connections_lost=connections_lost,
    )


def _written_over(header: WireHeader) -> int:
    return max(0, header.num_events - header.max_events)


def _read(folder: Path, stem: str, ledger: Ledger) -> WireHeader | None:
    """As it was written, which is newer, or as it was packed since."""
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
        "a record of the wire cannot be read",
        severity=Severity.ERROR,
        example=f"{stem}: {error}",
    )
    return None
