"""Recognizes the format of trace files by their content, whatever they are called."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from augury.core.errors import FileFormatError, InputError, LimitError
from augury.core.files import open_regular
from augury.ingest.formats.gzip_reader import read_unpacked
from augury.ingest.formats.table.table_rows import REQUIRED
from augury.ingest.formats.zip_members import zip_members
from augury.ingest.run_files import ReadBudget

MAX_FILES = 1 << 15
MAX_DEPTH = 3
HEAD_BYTES = 1 << 18
_MAX_SEARCHED_BYTES = 1 << 28
_SHOWN = 8
"""Number of files that an error describes."""

_KEY = re.compile(rb'"((?:[^"\\]|\\.){1,40})"\s*:')
_ARRAY_OF_OBJECTS = re.compile(rb"\A\[\s*\{")
_HOROVOD = re.compile(rb'start_time_since_epoch_in_micros|"NEGOTIATE_[A-Z]+"|"CYCLE_START"')
_EXECUTION_TRACE = re.compile(rb'"schema"\s*:\s*"[^"]*"')


class TraceFormat(StrEnum):
    KINETO = "trace of PyTorch's profiler (Kineto, Chrome JSON)"
    EVENT_ARRAY = "Chrome trace (an array of events)"
    MERGED = "traces of several ranks in one file"
    EXECUTION_TRACE = "PyTorch execution trace"
    HOROVOD = "Horovod timeline"
    TABLE = "table of operations"
    UNKNOWN = "not recognized"


@dataclass(frozen=True, slots=True)
class RecognizedFile:
    path: Path
    format: TraceFormat
    looks_like: str = ""
    """Description of content that was not recognized."""
    is_named: bool = True
    """Whether the user named the file, rather than a folder or an archive that has it."""


def recognize(paths: Sequence[Path], folder: Path, budget: ReadBudget) -> list[RecognizedFile]:
    """Returns the files at ``paths``, in folders and in archives, which are unpacked into
    ``folder``. Raises an InputError if a named file is not recognized, or nothing is."""
    found = [file for path in paths for file in _recognized(path, folder, budget)]
    unknown = [file for file in found if file.format == TraceFormat.UNKNOWN]
    if not found:
        raise InputError("there are no traces", remedy=f"give {_accepted()}")
    if len(unknown) == len(found) or any(file.is_named for file in unknown):
        raise FileFormatError(_described(found, unknown), remedy=f"give {_accepted()}")
    return found


def _accepted() -> str:
    return (
        "traces of PyTorch's profiler, execution traces, a Horovod timeline or a table of"
        " operations (docs/importing.md)"
    )


def _described(found: list[RecognizedFile], unknown: list[RecognizedFile]) -> str:
    lines = [f"{file.path}: {file.looks_like}" for file in unknown[:_SHOWN]]
    if len(unknown) > _SHOWN:
        lines.append(f"and {len(unknown) - _SHOWN} more")
    known: dict[TraceFormat, int] = {}
    for file in found:
        if file.format != TraceFormat.UNKNOWN:
            known[file.format] = known.get(file.format, 0) + 1
    also = "; ".join(f"{count} x {format_}" for format_, count in known.items())
    noun = "file is" if len(unknown) == 1 else "files are"
    return f"{len(unknown)} {noun} not recognized ({'; '.join(lines)})" + (
        f"; recognized: {also}" if also else ""
    )


def _recognized(path: Path, folder: Path, budget: ReadBudget) -> Iterator[RecognizedFile]:
    if path.is_dir():
        for file in _files_in(path):
            yield from _recognized_file(file, folder, budget, is_named=False)
    else:
        yield from _recognized_file(path, folder, budget, is_named=True)


def _files_in(folder: Path) -> list[Path]:
    """Returns the files of a folder and of its subfolders, without hidden ones."""
    found: list[Path] = []
    level = [folder]
    for _ in range(MAX_DEPTH):
        entries = [e for one in level for e in sorted(one.iterdir()) if e.name[:1] != "."]
        found += [entry for entry in entries if entry.is_file()]
        level = [entry for entry in entries if entry.is_dir() and not entry.is_symlink()]
        if len(found) > MAX_FILES:
            raise LimitError(
                f"{folder} has more than {MAX_FILES:,} files", remedy="name the traces"
            )
    return found


def _recognized_file(
    path: Path, folder: Path, budget: ReadBudget, *, is_named: bool
) -> Iterator[RecognizedFile]:
    head = _head(path)
    if head.startswith(b"PK\x03\x04"):
        for member in zip_members(path, folder, budget):
            yield RecognizedFile(member, *_format_of(member, _head(member)), is_named=False)
        return
    yield RecognizedFile(path, *_format_of(path, head), is_named=is_named)


def _head(path: Path) -> bytes:
    """Returns the beginning of a file, unpacked if it is gzipped."""
    try:
        with open_regular(path) as file:
            data = file.read(HEAD_BYTES)
    except OSError as error:
        raise InputError(
            f"cannot read {path}: {error.strerror}", remedy="check the path"
        ) from error
    if not data.startswith(b"\x1f\x8b"):
        return data
    unpacker = zlib.decompressobj(16 + zlib.MAX_WBITS)
    try:
        head = unpacker.decompress(data, HEAD_BYTES)
    except zlib.error:
        return data
    if len(data) < HEAD_BYTES and 0 < len(head) < HEAD_BYTES and not unpacker.eof:
        raise FileFormatError(f"{path} is truncated", remedy="copy or record it again")
    return head or data


def _format_of(path: Path, head: bytes) -> tuple[TraceFormat, str]:
    if head.startswith(b"PAR1"):
        return _format_of_parquet(path)
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if text.startswith(b"{"):
        return _format_of_object(path, text)
    if text.startswith(b"["):
        return _format_of_array(text)
    line = text.split(b"\n", 1)[0].rstrip(b"\r")
    columns = [name.strip(b' "') for name in line.split(b",")]
    if all(name.encode() in columns for name in REQUIRED):
        return TraceFormat.TABLE, ""
    return TraceFormat.UNKNOWN, _look(head, columns)


def _format_of_parquet(path: Path) -> tuple[TraceFormat, str]:
    import polars  # noqa: PLC0415

    try:
        with open_regular(path) as file:
            columns = list(polars.read_parquet_schema(file))
    except (polars.exceptions.PolarsError, polars.exceptions.PanicException, OSError):
        return TraceFormat.UNKNOWN, "a damaged Parquet file"
    if all(name in columns for name in REQUIRED):
        return TraceFormat.TABLE, ""
    return TraceFormat.UNKNOWN, f"a Parquet table with the columns {_listed(columns)}"


def _format_of_object(path: Path, text: bytes) -> tuple[TraceFormat, str]:
    if _EXECUTION_TRACE.search(text) and b'"nodes"' in text:
        return TraceFormat.EXECUTION_TRACE, ""
    if b'"traceEvents"' in text:
        # A trace within an object is one of several parts.
        depth = _depth(text[: text.index(b'"traceEvents"')])
        return (TraceFormat.KINETO if depth == 1 else TraceFormat.MERGED), ""
    if len(text) >= HEAD_BYTES // 2:
        # Long facts about devices may come before the events.
        data = read_unpacked(path, max_bytes=_MAX_SEARCHED_BYTES)
        if b'"traceEvents"' in data:
            return TraceFormat.KINETO, ""
    keys_found = [match[1].decode(errors="replace") for match in _KEY.finditer(text[:4096])]
    return TraceFormat.UNKNOWN, f"JSON with the keys {_listed(keys_found)}"


def _depth(text: bytes) -> int:
    """Returns how many objects and arrays are open at the end of a text."""
    depth = 0
    for part in re.finditer(rb'"(?:[^"\\]|\\.)*"|[][{}]', text):
        token = part[0]
        depth += (token in b"[{") - (token in b"]}") if len(token) == 1 else 0
    return depth


def _format_of_array(text: bytes) -> tuple[TraceFormat, str]:
    if _HOROVOD.search(text):
        return TraceFormat.HOROVOD, ""
    if b'"traceEvents"' in text and _ARRAY_OF_OBJECTS.match(text):
        return TraceFormat.MERGED, ""
    if b'"ph"' in text and _ARRAY_OF_OBJECTS.match(text):
        return TraceFormat.EVENT_ARRAY, ""
    keys = [match[1].decode(errors="replace") for match in _KEY.finditer(text[:4096])]
    return TraceFormat.UNKNOWN, f"a JSON array with the keys {_listed(keys)}"


def _look(head: bytes, columns: list[bytes]) -> str:
    if not head:
        return "an empty file"
    if head.startswith(b"\x1f\x8b"):
        return "a damaged gzip file"
    if b"\0" in head[:4096]:
        return f"binary data that begins with {head[:8].hex(' ')}"
    if len(columns) > 2:
        names = [name.decode(errors="replace") for name in columns]
        return f"text with the columns {_listed(names)}"
    first = head[:60].decode(errors="replace").splitlines()
    return f"text that begins with {first[0] if first else ''!r}"


def _listed(names: list[str]) -> str:
    unique = list(dict.fromkeys(name[:40] for name in names))
    more = ", ..." if len(unique) > _SHOWN else ""
    return (", ".join(unique[:_SHOWN]) or "none") + more
