"""The file of a Graph: magic, version, a JSON header that declares all columns, the columns.

The file is hostile input: sizes are checked against the file and against a cap
before anything is unpacked, every column has a checksum, and the graph is verified at the end.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import msgspec
import numpy as np
from numpy.typing import NDArray

from augury.core.columns import Table
from augury.core.errors import FileFormatError, InputError, LimitError
from augury.core.files import new_file, open_regular
from augury.core.graph.graph import (
    Buffers,
    Carries,
    Edges,
    Gradients,
    Graph,
    Interference,
    MeasuredSteps,
    Ops,
    Ranks,
    Resources,
)
from augury.core.graph.graph_spec import verify
from augury.core.json_depth import bounded_depth
from augury.core.ledger import Anomaly, Ledger
from augury.core.string_table import StringTable
from augury.core.units import format_bytes

SUFFIX = ".augury"
MAGIC = b"\x89AUGURY\n"
VERSION = 2
DEFAULT_MAX_BYTES = 2 << 30
"""Limit for the unpacked columns of one graph: about thirty million operations."""

_MAX_HEADER_BYTES = 16 << 20
_MIN_BYTES_OF_ISAL = 1 << 20
_PREFIX = struct.Struct("<8sII")
_CHECKSUM = struct.Struct("<I")
_TABLES: dict[str, type[Table]] = {
    "ops": Ops,
    "edges": Edges,
    "carries": Carries,
    "resources": Resources,
    "interference": Interference,
    "buffers": Buffers,
    "gradients": Gradients,
    "ranks": Ranks,
    "measured": MeasuredSteps,
}


_Size = Annotated[int, msgspec.Meta(ge=0, le=1 << 60)]


class _Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    count: _Size
    stored_bytes: _Size
    packed: bool
    crc32: int


class _Header(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    kind: str
    sections: list[_Section]
    meta: dict[str, str]
    ledger: list[Anomaly]


def save_graph(graph: Graph, path: str | os.PathLike[str], *, force: bool = False) -> None:
    packed = [_pack(name, values) for name, values in _columns(graph)]
    header = msgspec.json.encode(
        _Header(
            kind="graph",
            sections=[section for section, _ in packed],
            meta={_unicode(key): _unicode(value) for key, value in graph.meta.items()},
            ledger=[_unicode_anomaly(anomaly) for anomaly in graph.ledger],
        )
    )
    if len(header) > _MAX_HEADER_BYTES:
        raise LimitError(
            f"the graph's columns, meta and ledger take a header of {format_bytes(len(header))}",
            remedy=f"keep meta and ledger below {format_bytes(_MAX_HEADER_BYTES)}",
        )
    with new_file(Path(path), force=force) as file:
        file.write(_PREFIX.pack(MAGIC, VERSION, len(header)))
        file.write(header)
        file.write(_CHECKSUM.pack(zlib.crc32(header)))
        for _, data in packed:
            file.write(data)


def load_graph(path: str | os.PathLike[str], *, max_bytes: int = DEFAULT_MAX_BYTES) -> Graph:
    """Reads and verifies a graph in at most about ``max_bytes`` of memory."""
    path = Path(path)
    try:
        with open_regular(path) as file:
            return _read(file, path, max_bytes)
    except OSError as error:
        raise InputError(
            f"cannot read {path}: {error.strerror}", remedy="check the path"
        ) from error


def _unicode(text: str) -> str:
    """Replaces lone surrogates, which file names may contain and UTF-8 cannot."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _unicode_anomaly(anomaly: Anomaly) -> Anomaly:
    return msgspec.structs.replace(
        anomaly,
        name=_unicode(anomaly.name),
        meaning=_unicode(anomaly.meaning),
        remedy=_unicode(anomaly.remedy),
        example=_unicode(anomaly.example),
    )


def _columns(graph: Graph) -> Iterator[tuple[str, NDArray[Any]]]:
    for table_name in _TABLES:
        for name, values in getattr(graph, table_name).columns():
            yield f"{table_name}.{name}", values
    yield "strings.ends", graph.strings.ends
    yield "strings.text", np.frombuffer(graph.strings.blob, dtype=np.uint8)


def _dtypes() -> dict[str, np.dtype[Any]]:
    known: dict[str, np.dtype[Any]] = {
        f"{table_name}.{name}": dtype
        for table_name, table in _TABLES.items()
        for name, dtype in table.schema()
    }
    return known | {"strings.ends": np.dtype("<i8"), "strings.text": np.dtype("<u1")}


def _pack(name: str, values: NDArray[Any]) -> tuple[_Section, bytes]:
    raw = values.tobytes()
    data = _compressed(raw)
    packed = len(data) < len(raw)
    if not packed:
        data = raw
    section = _Section(
        name=name,
        count=len(values),
        stored_bytes=len(data),
        packed=packed,
        crc32=zlib.crc32(raw),
    )
    return section, data


def _compressed(raw: bytes) -> bytes:
    """ISA-L is fast, but the same input has been seen to give other bytes; zlib always gives the
    same ones, and is fast enough for columns of small graphs."""
    if len(raw) < _MIN_BYTES_OF_ISAL:
        return zlib.compress(raw, 1)
    from isal import isal_zlib  # noqa: PLC0415

    return bytes(isal_zlib.compress(raw, 1))


def _read(file: BinaryIO, path: Path, max_bytes: int) -> Graph:
    file_bytes = os.fstat(file.fileno()).st_size
    if file_bytes == 0:
        raise FileFormatError(f"{path} is empty", remedy="write it again")
    header = _read_header(file, path, file_bytes)
    dtypes = _dtypes()
    declared = {section.name for section in header.sections}
    if declared != set(dtypes) or len(header.sections) != len(dtypes):
        odd = sorted(declared ^ set(dtypes)) or ["a column twice"]
        raise _damaged(path, f"its columns are not a graph's ({', '.join(odd)[:200]!r})")
    unpacked = sum(s.count * dtypes[s.name].itemsize for s in header.sections)
    if unpacked > max_bytes:
        raise LimitError(
            f"{path} unpacks to {format_bytes(unpacked)},"
            f" more than the cap of {format_bytes(max_bytes)}",
            remedy="raise the cap with --max-bytes if you trust the file",
        )
    expected = file.tell() + sum(s.stored_bytes for s in header.sections)
    if expected > file_bytes:
        raise FileFormatError(
            f"{path} is truncated: {format_bytes(file_bytes)} of {format_bytes(expected)}",
            remedy="copy or write it again",
        )
    if expected < file_bytes:
        raise _damaged(path, f"{file_bytes - expected} bytes follow its end")
    columns = {s.name: _read_column(file, path, s, dtypes[s.name]) for s in header.sections}
    tables: dict[str, Any] = {
        table_name: table(**{name: columns[f"{table_name}.{name}"] for name, _ in table.schema()})
        for table_name, table in _TABLES.items()
    }
    graph = Graph(
        strings=StringTable(columns["strings.text"].tobytes(), columns["strings.ends"]),
        meta=header.meta,
        ledger=Ledger(header.ledger),
        **tables,
    )
    verify(graph)
    return graph


def _read_header(file: BinaryIO, path: Path, file_bytes: int) -> _Header:
    prefix = file.read(_PREFIX.size)
    if prefix[: len(MAGIC)] != MAGIC[: len(prefix)]:
        raise FileFormatError(
            f"{path} is not an Augury graph",
            remedy=f"pass a {SUFFIX} file, such as `augury synth` writes, or the folder of a run",
        )
    if len(prefix) < _PREFIX.size:
        raise FileFormatError(f"{path} is truncated", remedy="copy or write it again")
    _, version, header_bytes = _PREFIX.unpack(prefix)
    if version != VERSION:
        raise FileFormatError(
            f"{path} has format version {version}; this Augury reads version {VERSION}",
            remedy="write it again with this version, or install the one that wrote it",
        )
    if header_bytes > _MAX_HEADER_BYTES:
        raise _damaged(path, f"its header claims {format_bytes(header_bytes)}")
    if _PREFIX.size + header_bytes + _CHECKSUM.size > file_bytes:
        raise FileFormatError(f"{path} is truncated", remedy="copy or write it again")
    data = file.read(header_bytes)
    (checksum,) = _CHECKSUM.unpack(file.read(_CHECKSUM.size))
    if zlib.crc32(data) != checksum:
        raise _damaged(path, "its header's checksum does not match")
    try:
        header = msgspec.json.decode(bounded_depth(data), type=_Header)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _damaged(path, f"its header is not understood ({error})") from error
    if header.kind != "graph":
        raise _damaged(path, f"it holds {header.kind[:40]!r}, not a graph")
    return header


def _read_column(
    file: BinaryIO, path: Path, section: _Section, dtype: np.dtype[Any]
) -> NDArray[Any]:
    from isal import isal_zlib  # noqa: PLC0415

    raw_bytes = section.count * dtype.itemsize
    wrong_size = _damaged(path, f"column {section.name} does not have the size it declares")
    if section.stored_bytes > raw_bytes:
        # The writer packs only if that saves space: this header is forged, and may claim any size.
        raise wrong_size
    data = file.read(section.stored_bytes)
    if section.packed:
        unpacker = isal_zlib.decompressobj()
        try:
            # One byte more than declared shows that there is too much.
            data = unpacker.decompress(data, raw_bytes + 1)
        except isal_zlib.IsalError as error:  # type: ignore[misc]  # its stub has an instance
            raise _damaged(path, f"column {section.name} does not unpack ({error})") from error
    if len(data) != raw_bytes:
        raise wrong_size
    if zlib.crc32(data) != section.crc32:
        raise _damaged(path, f"the checksum of column {section.name} does not match")
    return np.frombuffer(data, dtype=dtype)


def _damaged(path: Path, how: str) -> FileFormatError:
    return FileFormatError(f"{path} is damaged: {how}", remedy="copy or write it again")
