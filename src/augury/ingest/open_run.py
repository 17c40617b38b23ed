"""Opening a run's folder: as it was read before, or anew from what the ranks recorded."""

from __future__ import annotations

from pathlib import Path

from augury.core.errors import AuguryError, InputError
from augury.core.trace.trace import Trace
from augury.core.trace.trace_file import read_sources, read_trace, write_trace
from augury.ingest.recorded import read_run
from augury.ingest.run_files import MAX_RUN_BYTES, ReadBudget, digests_of


def open_run(folder: Path, *, max_bytes: int = MAX_RUN_BYTES) -> Trace:
    """``run.json`` answers if it was read from exactly the files that are there, by their digests,
    or if there are none; else it is written anew, where that is possible. ``max_bytes`` caps what
    all files unpack to, and what was read from them before."""
    if not folder.is_dir():
        raise InputError(f"{folder} is not a run's folder", remedy="give what `augury run` wrote")
    digests = digests_of(folder, ReadBudget(folder, max_bytes))
    before = _read_before(folder)
    if not digests or digests == before:
        try:
            trace = read_trace(folder, max_bytes=max_bytes)
        except InputError:
            # Damaged or of another version: what the ranks wrote is still there to be read.
            if not digests:
                raise
        else:
            trace.ledger.note(
                "rank-files-gone",
                "the files of all ranks are gone: what was read from them before is used",
                count=0 if digests else len(before),
                remedy="bring them back, or record the run again",
            )
            return trace
    trace = read_run(folder, max_bytes=max_bytes)
    try:
        write_trace(trace, folder, sources=digests)
    except (AuguryError, OSError):
        return trace  # a folder that cannot be written is read again the next time
    return trace


def _read_before(folder: Path) -> dict[str, str]:
    try:
        return read_sources(folder)
    except InputError:
        return {}
