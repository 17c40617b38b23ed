"""Opening a run's folder: as it was read before, or anew from what the ranks recorded."""

from __future__ import annotations

from pathlib import Path

from augury.core.errors import AuguryError, InputError
from augury.core.trace import Trace
from augury.core.trace_file import RUN_FILE, read_trace, write_trace
from augury.ingest.recorded import read_run


def open_run(folder: Path) -> Trace:
    """``run.json`` answers if it is younger than all that ranks wrote; else it is written anew,
    where that is possible."""
    if not folder.is_dir():
        raise InputError(f"{folder} is not a run's folder", remedy="give what `augury run` wrote")
    if _is_current(folder):
        try:
            return read_trace(folder)
        except InputError:
            # Damaged or of another version: what the ranks wrote is still there to be read.
            if not any(folder.glob("rank-*.json")):
                raise
    trace = read_run(folder)
    try:
        write_trace(trace, folder)
    except (AuguryError, OSError):
        return trace  # a folder that cannot be written is read again the next time
    return trace


def _is_current(folder: Path) -> bool:
    try:
        written = (folder / RUN_FILE).stat().st_mtime_ns
        left = (*folder.glob("rank-*"), *folder.glob("process.wire-*"))
        return all(path.stat().st_mtime_ns < written for path in left)
    except OSError:
        return False
