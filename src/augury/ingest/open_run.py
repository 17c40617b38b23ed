"""Opens a run folder: from the cached Trace, or from the files of the ranks."""

from __future__ import annotations

from pathlib import Path

from augury.core.errors import AuguryError, InputError
from augury.core.trace.trace import Trace
from augury.core.trace.trace_file import RUN_FILE, read_sources, read_trace, write_trace
from augury.ingest.recorded import read_run
from augury.ingest.run_files import MAX_RUN_BYTES, ReadBudget, digests_of


def open_run(folder: Path, *, max_bytes: int = MAX_RUN_BYTES) -> Trace:
    """The cached ``run.json`` is used if the digests of the rank files are unchanged, or if there
    are no rank files. Otherwise the files are read, and the cache is written if the folder is
    writable. ``max_bytes`` limits the unpacked size of all files, and that of the cache."""
    if not folder.is_dir():
        raise InputError(
            f"{folder} is not a run folder", remedy="give a folder that `augury run` wrote"
        )
    digests = digests_of(folder, ReadBudget(folder, max_bytes))
    if not digests and not (folder / RUN_FILE).exists():
        raise InputError(
            f"{folder} contains no run: it has neither rank records nor {RUN_FILE}",
            remedy="give a folder that `augury run` or `augury import` wrote",
        )
    cached = _cached_sources(folder)
    if not digests or digests == cached:
        try:
            trace = read_trace(folder, max_bytes=max_bytes)
        except InputError:
            # A damaged cache, or one of another version: the rank files are read instead.
            if not digests:
                raise
        else:
            trace.ledger.note(
                "rank-files-gone",
                "the files of all ranks are missing; the cached trace is used",
                count=0 if digests else len(cached),
                remedy="restore them, or record the run again",
            )
            return trace
    trace = read_run(folder, max_bytes=max_bytes)
    try:
        write_trace(trace, folder, sources=digests)
    except (AuguryError, OSError):
        return trace  # without a cache the files are read again next time
    return trace


def _cached_sources(folder: Path) -> dict[str, str]:
    try:
        return read_sources(folder)
    except InputError:
        return {}
