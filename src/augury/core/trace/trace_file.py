"""The files of a Trace: ``run.json`` with small facts, and one file of columns per table.

The files may be hostile input. Reading limits their size, compares the sizes and checksums of the
tables with those in ``run.json``, and finally checks all values by the specification of a Trace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from augury.core.columns import Table
from augury.core.errors import FileFormatError, InputError, LimitError
from augury.core.files import new_file, open_regular
from augury.core.json_depth import bounded_depth
from augury.core.ledger import Anomaly, Ledger
from augury.core.string_table import StringTable
from augury.core.trace.table_file import SUFFIX, TableFile, TableWriter, damaged, read_table
from augury.core.trace.trace import (
    Allocations,
    Calibration,
    Events,
    GradientEvents,
    MemoryUse,
    RankFacts,
    Steps,
    Streams,
    Trace,
)
from augury.core.trace.trace_spec import problems
from augury.core.units import format_bytes

RUN_FILE = "run.json"
VERSION = 3
DEFAULT_MAX_BYTES = 2 << 30
"""Default limit on the unpacked columns of one trace."""

_MAX_HEAD_BYTES = 512 << 20
_TABLES: dict[str, type[Table]] = {
    "events": Events,
    "streams": Streams,
    "steps": Steps,
    "gradients": GradientEvents,
    "memory": MemoryUse,
    "allocations": Allocations,
}


@dataclass(frozen=True, slots=True)
class TableParts:
    """A table whose rows come in parts."""

    parts: Iterable[Table]
    num_rows: int


class _Head(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Contents of ``run.json``."""

    schema_version: int
    world_size: int
    ranks: list[RankFacts]
    groups: list[list[int]]
    calibration: list[Calibration]
    ledger: list[Anomaly]
    strings: list[str]
    tables: dict[str, TableFile]
    sources: dict[str, str] = {}
    """Digests of the files that the trace was read from, by name; empty for an imported trace."""


class _Sources(msgspec.Struct, frozen=True):
    """The sources alone, read from ``run.json`` of any version."""

    sources: dict[str, str] = {}


class _Version(msgspec.Struct, frozen=True):
    schema_version: int


def write_trace(trace: Trace, folder: Path, *, sources: dict[str, str] | None = None) -> None:
    """Writes the files of a trace, and replaces existing ones. ``sources`` are the digests of the
    files that the trace was read from, by name."""
    write_trace_in_parts({}, lambda: trace, folder, sources=sources)


def write_trace_in_parts(
    tables: Mapping[str, TableParts],
    facts: Callable[[], Trace],
    folder: Path,
    *,
    sources: dict[str, str] | None = None,
) -> None:
    """Writes a trace of which some tables come in parts and need not be in memory as a whole.
    ``facts`` returns everything else, and is called after the last part. ``run.json`` is written
    last: it holds the checksums of the tables, so an interrupted write is detected."""
    written = {
        name: _write_table(folder, name, table.parts, table.num_rows)
        for name, table in tables.items()
    }
    trace = facts()
    for name in _TABLES:
        if name not in written:
            whole: Table = getattr(trace, name)
            written[name] = _write_table(folder, name, [whole], len(whole))
    head = _Head(
        schema_version=VERSION,
        world_size=trace.world_size,
        ranks=trace.ranks,
        groups=trace.groups,
        calibration=trace.calibration,
        ledger=list(trace.ledger),
        strings=list(trace.strings),
        tables={name: written[name] for name in _TABLES},
        sources=sources or {},
    )
    encoded = msgspec.json.encode(_without_surrogates(msgspec.to_builtins(head)))
    with new_file(folder / RUN_FILE, force=True) as file:
        file.write(encoded)


def read_sources(folder: Path) -> dict[str, str]:
    """Returns the digests of the files that the trace was read from, by name."""
    path = folder / RUN_FILE
    try:
        return msgspec.json.decode(_read_text(path), type=_Sources).sources
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise damaged(path, f"it is not understood ({str(error)[:200]})") from error


def read_trace(folder: Path, *, max_bytes: int = DEFAULT_MAX_BYTES) -> Trace:
    head = _read_head(folder / RUN_FILE)
    if set(head.tables) != set(_TABLES):
        raise damaged(folder / RUN_FILE, "it does not list the tables of a trace")
    unpacked_bytes = sum(
        head.tables[name].num_rows * sum(dtype.itemsize for _, dtype in table.schema())
        for name, table in _TABLES.items()
    )
    if unpacked_bytes > max_bytes:
        raise LimitError(
            f"{folder} unpacks to {format_bytes(unpacked_bytes)},"
            f" more than the cap of {format_bytes(max_bytes)}",
            remedy="raise the cap with --max-bytes if you trust the run",
        )
    tables: dict[str, Any] = {
        name: read_table(folder / f"{name}{SUFFIX}", head.tables[name], table)
        for name, table in _TABLES.items()
    }
    trace = Trace(
        strings=StringTable.of(head.strings),
        ranks=head.ranks,
        world_size=head.world_size,
        groups=head.groups,
        calibration=head.calibration,
        ledger=Ledger(head.ledger),
        **tables,
    )
    problem = next(problems(trace), None)
    if problem is not None:
        raise damaged(folder, problem)
    return trace


def _write_table(folder: Path, name: str, parts: Iterable[Table], num_rows: int) -> TableFile:
    with new_file(folder / f"{name}{SUFFIX}", force=True) as file:
        writer = TableWriter(file, _TABLES[name], num_rows)
        for part in parts:
            writer.add(part)
        return writer.finish()


def _read_head(path: Path) -> _Head:
    try:
        data = _read_text(path)
        version = msgspec.json.decode(data, type=_Version).schema_version
        if version != VERSION:
            raise FileFormatError(
                f"{path} has format version {version}; this Augury reads version {VERSION}",
                remedy="record or import the run again",
            )
        return msgspec.json.decode(data, type=_Head)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise damaged(path, f"it is not understood ({str(error)[:200]})") from error


def _read_text(path: Path) -> bytes:
    try:
        with open_regular(path) as file:
            data = file.read(_MAX_HEAD_BYTES + 1)
    except OSError as error:
        raise InputError(
            f"cannot read {path}: {error.strerror}", remedy="record or import the run again"
        ) from error
    if len(data) > _MAX_HEAD_BYTES:
        raise damaged(path, f"it is larger than {format_bytes(_MAX_HEAD_BYTES)}")
    return bounded_depth(data)


def _without_surrogates(value: Any) -> Any:
    """Replaces lone surrogates in all strings. File names may contain them; JSON cannot."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, dict):
        return {_without_surrogates(key): _without_surrogates(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_surrogates(item) for item in value]
    return value
