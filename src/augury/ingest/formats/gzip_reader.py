"""Reads files that may be gzipped, with limits on their unpacked size."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from augury.core.errors import FileFormatError, InputError, LimitError
from augury.core.files import open_regular
from augury.core.units import format_bytes
from augury.ingest.run_files import ReadBudget

MAX_BYTES = 2 << 30
"""Limit on the unpacked size of one file."""
MAX_RATIO = 400
"""Limit on unpacked size over packed size. Traces reach 20 to 60; only a file that repeats one byte
reaches nearly a thousand."""

_GZIP = b"\x1f\x8b"
_PACKED_CHUNK = 256 << 10
_CHUNK = 2 << 20


def read_unpacked(
    path: Path,
    *,
    max_bytes: int = MAX_BYTES,
    max_ratio: int = MAX_RATIO,
    allow_truncated: bool = False,
    budget: ReadBudget | None = None,
) -> bytes:
    """Returns the whole content of a file, unpacked if the file is gzipped. ``max_bytes`` limits
    the unpacked size of this file; ``budget`` limits the total over all files of a run. A truncated
    file is refused unless ``allow_truncated``."""
    return b"".join(
        unpacked_chunks(
            path,
            max_bytes=max_bytes,
            max_ratio=max_ratio,
            allow_truncated=allow_truncated,
            budget=budget,
        )
    )


def unpacked_chunks(
    path: Path,
    *,
    max_bytes: int = MAX_BYTES,
    max_ratio: int = MAX_RATIO,
    allow_truncated: bool = False,
    budget: ReadBudget | None = None,
) -> Iterator[bytes]:
    """Yields the content of a file in pieces of a few megabytes, under the same limits as
    ``read_unpacked``. A file that is not read to its end takes nothing from the budget."""
    cap = max_bytes if budget is None else min(max_bytes, budget.left_bytes)
    total = 0
    try:
        for chunk in _read(path, cap, max_ratio, allow_truncated=allow_truncated):
            total += len(chunk)
            yield chunk
    except LimitError:
        if budget is not None and cap < max_bytes:
            # The run exceeds its budget, not the file its limit: this raises RunLimitError.
            budget.take(cap + 1)
        raise
    if budget is not None:
        budget.take(total)


def _read(path: Path, max_bytes: int, max_ratio: int, *, allow_truncated: bool) -> Iterator[bytes]:
    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            if file.read(2) != _GZIP:
                if size > max_bytes:
                    raise _too_large(path, max_bytes)
                file.seek(0)
                while max_bytes > 0 and (chunk := file.read(min(_CHUNK, max_bytes))):
                    max_bytes -= len(chunk)
                    yield chunk
                return
            file.seek(0)
            # A small file may exceed the ratio without being a decompression bomb.
            cap = min(max_bytes, max(1 << 20, size * max_ratio))
            yield from _unpack(file, path, cap, allow_truncated=allow_truncated)
    except OSError as error:
        raise InputError(
            f"cannot read {path}: {error.strerror}", remedy="check the path"
        ) from error


def _unpack(file: BinaryIO, path: Path, cap: int, *, allow_truncated: bool) -> Iterator[bytes]:
    from isal import isal_zlib  # noqa: PLC0415

    total = 0
    unpacker = isal_zlib.decompressobj(16 + zlib.MAX_WBITS)
    try:
        while data := file.read(_PACKED_CHUNK):
            is_cut = False
            while data or is_cut:
                if unpacker.eof:  # a gzip file may have several members
                    unpacker = isal_zlib.decompressobj(16 + zlib.MAX_WBITS)
                # One byte beyond the cap is enough to see that the file is too large.
                limit = min(_CHUNK, cap - total + 1)
                part = unpacker.decompress(data, limit)
                total += len(part)
                if total > cap:
                    raise _too_large(path, cap)
                yield part
                data = unpacker.unused_data if unpacker.eof else unpacker.unconsumed_tail
                # The unpacker may hold back bytes of data that it has taken.
                is_cut = len(part) == limit and not unpacker.eof
    except isal_zlib.IsalError as error:  # type: ignore[misc]  # no class in its stub
        raise FileFormatError(
            f"{path} is damaged and cannot be unpacked ({error})", remedy="copy or record it again"
        ) from error
    if not unpacker.eof and not allow_truncated:
        raise FileFormatError(f"{path} is truncated", remedy="copy or record it again")


def _too_large(path: Path, cap: int) -> LimitError:
    return LimitError(
        f"{path} unpacks to more than {format_bytes(cap)}",
        remedy="record fewer steps, or split it",
    )
