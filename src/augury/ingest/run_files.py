"""The files that a recorded run is read from: which there are, how large, and their digests."""

from __future__ import annotations

import hashlib
from pathlib import Path

from augury.core.errors import InputError, LimitError
from augury.core.files import open_regular
from augury.core.trace.trace_file import RUN_FILE, read_sources
from augury.core.units import format_bytes

MAX_RUN_BYTES = 16 << 30
"""Of all files of one run, unpacked."""

READER_VERSION = 3
"""Raised when the same files are understood in another way, so that they are read again."""
_PATTERNS = ("rank-*.json", "rank-*.json.gz", "*.wire-*")
_NOT_A_FILE = "not a file"


class ReadBudget:
    """Bytes that the files of one run may still unpack to, together."""

    def __init__(self, folder: Path, max_bytes: int = MAX_RUN_BYTES) -> None:
        self._folder = folder
        self._max_bytes = max_bytes
        self.left_bytes = max_bytes

    def take(self, num_bytes: int) -> None:
        self.left_bytes -= num_bytes
        if self.left_bytes < 0:
            raise RunLimitError(
                f"{self._folder} unpacks to more than the cap of {format_bytes(self._max_bytes)}",
                remedy="raise the cap with --max-bytes if you trust the run",
            )


class RunLimitError(LimitError):
    """The files of a run are too large together: reading the other files would not help."""


def source_files(folder: Path) -> list[Path]:
    """What ranks and the wire recorder left, by name. Files still being written are not part."""
    found = {path for pattern in _PATTERNS for path in folder.glob(pattern)}
    return sorted(path for path in found if not path.name.startswith("."))


def used_bytes(path: Path) -> int:
    """Without holes: the wire recorder's files are large and mostly empty."""
    found = path.stat()
    return min(found.st_size, found.st_blocks * 512)


def digests_of(folder: Path, budget: ReadBudget) -> dict[str, str]:
    """The digest of every source file, by name, and the version of what reads them."""
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


def run_digest(folder: Path, *, max_bytes: int = MAX_RUN_BYTES) -> str:
    """Returns one SHA-256 digest of all source files of a run.

    Where they are gone, their digests are taken from ``run.json``. An imported run has no source
    files: its digest is that of ``run.json``, which has checksums of all tables."""
    sources = digests_of(folder, ReadBudget(folder, max_bytes)) or read_sources(folder)
    sources.pop("reader", None)
    if not sources:
        with open_regular(folder / RUN_FILE) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    listed = "".join(f"{name}\0{digest}\n" for name, digest in sorted(sources.items()))
    return hashlib.sha256(listed.encode(errors="surrogatepass")).hexdigest()
