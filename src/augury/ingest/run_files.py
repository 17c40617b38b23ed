"""Source files of a recorded run: their names, sizes and digests, and a limit on their size."""

from __future__ import annotations

import hashlib
from pathlib import Path

from augury.core.errors import InputError, LimitError
from augury.core.files import open_regular
from augury.core.trace.trace_file import RUN_FILE, read_sources
from augury.core.units import format_bytes

MAX_RUN_BYTES = 16 << 30
"""Unpacked size of all files of one run."""

READER_VERSION = 6
"""Raised when a reader changes its results, so that cached results are read again."""
_PATTERNS = ("rank-*.json", "rank-*.json.gz", "*.wire-*")
_NOT_A_FILE = "not a file"


class ReadBudget:
    """Number of bytes that the files of one run may still unpack to in total."""

    def __init__(self, folder: Path, max_bytes: int = MAX_RUN_BYTES) -> None:
        self._folder = folder
        self._max_bytes = max_bytes
        self.left_bytes = max_bytes

    def take(self, num_bytes: int) -> None:
        self.left_bytes -= num_bytes
        if self.left_bytes < 0:
            raise RunLimitError(
                f"{self._folder} unpacks to more than the limit of {format_bytes(self._max_bytes)}",
                remedy="raise the limit with --max-bytes if you trust the run",
            )


class RunLimitError(LimitError):
    """The files of a run are too large in total: skipping one file would not help."""


def source_files(folder: Path) -> list[Path]:
    """Returns the files of ranks and of the wire recorder by name, without unfinished ones."""
    found = {path for pattern in _PATTERNS for path in folder.glob(pattern)}
    return sorted(path for path in found if not path.name.startswith("."))


def used_bytes(path: Path) -> int:
    """Returns the size on disk: files of the wire recorder are large and sparse."""
    found = path.stat()
    return min(found.st_size, found.st_blocks * 512)


def digests_of(folder: Path, budget: ReadBudget) -> dict[str, str]:
    """Returns the digest of each source file by name, and the version of the reader."""
    found: dict[str, str] = {}
    for path in source_files(folder):
        try:
            with open_regular(path) as file:
                budget.take(used_bytes(path))
                found[path.name] = hashlib.file_digest(file, "blake2b").hexdigest()[:32]
        except RunLimitError:
            raise
        except (OSError, InputError):
            found[path.name] = _NOT_A_FILE
    if found:
        found["reader"] = str(READER_VERSION)
    return found


def run_digest(
    folder: Path, *, max_bytes: int = MAX_RUN_BYTES, is_just_opened: bool = False
) -> str:
    """Returns one SHA-256 digest of all source files of a run.

    Where they are gone, or the run was just opened, their digests are taken from ``run.json``. An
    imported run has no source files: its digest is that of ``run.json``, which has checksums of
    all tables."""
    known = read_sources(folder) if is_just_opened else {}
    sources = known or digests_of(folder, ReadBudget(folder, max_bytes)) or read_sources(folder)
    sources.pop("reader", None)
    if not sources:
        with open_regular(folder / RUN_FILE) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    listed = "".join(f"{name}\0{digest}\n" for name, digest in sorted(sources.items()))
    return hashlib.sha256(listed.encode(errors="surrogatepass")).hexdigest()
