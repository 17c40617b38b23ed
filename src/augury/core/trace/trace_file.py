"""The files of a Trace: ``run.json`` with small facts, and one Parquet file per table.

The files may be hostile input. Reading limits their size, compares the checksum and the columns of
each table with the expected ones, and finally checks all values by the specification of a Trace.
"""

from __future__ import annotations

import io
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import numpy as np

from augury.core.columns import Table
from augury.core.errors import FileFormatError, InputError, LimitError
from augury.core.files import new_file, open_regular
from augury.core.ledger import Anomaly, Ledger
from augury.core.string_table import StringTable
from augury.core.trace.trace import (
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

if TYPE_CHECKING:
    import polars

RUN_FILE = "run.json"
VERSION = 1
DEFAULT_MAX_BYTES = 2 << 30
"""Default limit on the unpacked columns of one trace."""

_MAX_HEAD_BYTES = 512 << 20
_TABLES: dict[str, type[Table]] = {
    "events": Events,
    "streams": Streams,
    "steps": Steps,
    "gradients": GradientEvents,
    "memory": MemoryUse,
}
_Size = Annotated[int, msgspec.Meta(ge=0, le=1 << 60)]


class _TableFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Size and checksum of a table's Parquet file."""

    num_rows: _Size
    stored_bytes: _Size
    crc32: int


class _Head(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Contents of ``run.json``."""

    schema_version: int
    world_size: int
    ranks: list[RankFacts]
    groups: list[list[int]]
    calibration: list[Calibration]
    ledger: list[Anomaly]
    strings: list[str]
    tables: dict[str, _TableFile]
    sources: dict[str, str] = {}
    """Digests of the files that the trace was read from, by name; empty for an imported trace."""


class _Sources(msgspec.Struct, frozen=True):
    """The sources alone, read from ``run.json`` of any version."""

    sources: dict[str, str] = {}


class _Version(msgspec.Struct, frozen=True):
    schema_version: int


def write_trace(trace: Trace, folder: Path, *, sources: dict[str, str] | None = None) -> None:
    """Writes the files of a trace, and replaces existing ones. ``run.json`` is written last: it
    holds the checksums of the tables, so an interrupted write is detected. ``sources`` are the
    digests of the files that the trace was read from, by name."""
    tables: dict[str, _TableFile] = {}
    for name in _TABLES:
        data = _pack(getattr(trace, name))
        with new_file(folder / f"{name}.parquet", force=True) as file:
            file.write(data)
        tables[name] = _TableFile(
            num_rows=len(getattr(trace, name)), stored_bytes=len(data), crc32=zlib.crc32(data)
        )
    head = _Head(
        schema_version=VERSION,
        world_size=trace.world_size,
        ranks=trace.ranks,
        groups=trace.groups,
        calibration=trace.calibration,
        ledger=list(trace.ledger),
        strings=list(trace.strings),
        tables=tables,
        sources=sources or {},
    )
    encoded = msgspec.json.encode(_without_surrogates(msgspec.to_builtins(head)))
    with new_file(folder / RUN_FILE, force=True) as file:
        file.write(encoded)


def read_sources(folder: Path) -> dict[str, str]:
    """Returns the digests of the files that the trace was read from, by name."""
    path = folder / RUN_FILE
    try:
        return msgspec.json.decode(_read_bytes(path, _MAX_HEAD_BYTES), type=_Sources).sources
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _damaged(path, f"it is not understood ({str(error)[:200]})") from error


def read_trace(folder: Path, *, max_bytes: int = DEFAULT_MAX_BYTES) -> Trace:
    head = _read_head(folder / RUN_FILE)
    if set(head.tables) != set(_TABLES):
        raise _damaged(folder / RUN_FILE, "it does not list the tables of a trace")
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
        name: _read_table(folder / f"{name}.parquet", head.tables[name], table)
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
        raise _damaged(folder, problem)
    return trace


def _pack(table: Table) -> bytes:
    import polars  # noqa: PLC0415

    buffer = io.BytesIO()
    frame = polars.DataFrame({name: np.asarray(values) for name, values in table.columns()})
    frame.write_parquet(buffer, compression="zstd", compression_level=1, statistics=False)
    return buffer.getvalue()


def _read_head(path: Path) -> _Head:
    data = _read_bytes(path, _MAX_HEAD_BYTES)
    try:
        version = msgspec.json.decode(data, type=_Version).schema_version
        if version != VERSION:
            raise FileFormatError(
                f"{path} has format version {version}; this Augury reads version {VERSION}",
                remedy="record or import the run again",
            )
        return msgspec.json.decode(data, type=_Head)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _damaged(path, f"it is not understood ({str(error)[:200]})") from error


def _read_table(path: Path, declared: _TableFile, table: type[Table]) -> Table:
    import polars  # noqa: PLC0415

    data = _read_bytes(path, declared.stored_bytes)
    if len(data) != declared.stored_bytes or zlib.crc32(data) != declared.crc32:
        raise _damaged(path, f"it is not the one that {RUN_FILE} was written with")
    names = [name for name, _ in table.schema()]
    try:
        found = polars.read_parquet_schema(io.BytesIO(data))
        if dict(found) != _schema(table):
            raise _damaged(path, "its columns are not those of this table")
        # Reading one row more than declared reveals a file with more rows.
        frame = polars.read_parquet(
            io.BytesIO(data), columns=names, n_rows=declared.num_rows + 1, use_statistics=False
        )
    except (polars.exceptions.PolarsError, polars.exceptions.PanicException) as error:
        raise _damaged(path, f"it is not a Parquet file ({str(error)[:200]})") from error
    if frame.height != declared.num_rows:
        raise _damaged(path, f"it does not have {declared.num_rows} rows, as {RUN_FILE} says")
    if any(frame[name].null_count() for name in names):
        raise _damaged(path, "some rows have missing values")
    return table(**{name: frame[name].to_numpy() for name in names})


def _schema(table: type[Table]) -> dict[str, polars.DataType]:
    """Returns the type of each column in the Parquet file of a table."""
    import polars  # noqa: PLC0415

    type_of = {"<u1": polars.UInt8(), "<i4": polars.Int32(), "<i8": polars.Int64()}
    return {name: type_of[_code(dtype)] for name, dtype in table.schema()}


def _code(dtype: np.dtype[Any]) -> str:
    return f"<{dtype.kind}{dtype.itemsize}"


def _read_bytes(path: Path, max_bytes: int) -> bytes:
    try:
        with open_regular(path) as file:
            data = file.read(max_bytes + 1)
    except OSError as error:
        raise InputError(
            f"cannot read {path}: {error.strerror}", remedy="record or import the run again"
        ) from error
    if len(data) > max_bytes:
        raise _damaged(path, f"it is larger than {format_bytes(max_bytes)}")
    return data


def _without_surrogates(value: Any) -> Any:
    """Replaces lone surrogates in all strings. File names may contain them; JSON cannot."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, dict):
        return {_without_surrogates(key): _without_surrogates(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_surrogates(item) for item in value]
    return value


def _damaged(path: Path, how: str) -> FileFormatError:
    return FileFormatError(
        f"{path} is damaged: {how}", remedy="remove run.json and read the recording again"
    )
