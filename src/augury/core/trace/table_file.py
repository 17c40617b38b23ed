"""The file of one table of a Trace: its columns as they lie in memory, one after the other.

Each column starts at a multiple of 64 bytes. The number of rows and the checksums of the columns
stand in ``run.json``. A table can be written in parts and is mapped into memory when it is read.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, BinaryIO, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from augury.core.columns import Table
from augury.core.errors import FileFormatError, InputError
from augury.core.files import open_regular

SUFFIX = ".columns"
_ALIGNMENT = 64

Size = Annotated[int, msgspec.Meta(ge=0, le=1 << 60)]
T = TypeVar("T", bound=Table)


class TableFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Rows and checksums of a table's file."""

    num_rows: Size
    crc32: dict[str, int]
    """CRC-32 of each column by name."""


class TableWriter:
    """Writes a table of a known number of rows in parts, to a file that is open for writing."""

    def __init__(self, file: BinaryIO, table: type[Table], num_rows: int) -> None:
        self._file = file
        self._table = table
        self._num_rows = num_rows
        self._crc32 = {name: 0 for name, _ in table.schema()}
        self._next_row = 0
        file.truncate(_file_bytes(table, num_rows))

    def add(self, part: Table) -> None:
        """Appends rows."""
        from isal import isal_zlib  # noqa: PLC0415

        for name, dtype, offset in _places(self._table, self._num_rows):
            data = memoryview(getattr(part, name)).cast("B")
            self._crc32[name] = isal_zlib.crc32(data, self._crc32[name])
            self._file.seek(offset + self._next_row * dtype.itemsize)
            self._file.write(data)
        self._next_row += len(part)

    def finish(self) -> TableFile:
        assert self._next_row == self._num_rows
        return TableFile(num_rows=self._num_rows, crc32=self._crc32)


def read_table(path: Path, declared: TableFile, table: type[T]) -> T:
    """Raises an InputError if the file is not the declared one. Values are not checked."""
    from isal import isal_zlib  # noqa: PLC0415

    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            if size != _file_bytes(table, declared.num_rows):
                raise damaged(path, f"it does not have the size of {declared.num_rows:,} rows")
            content: Any = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) if size else b""
    except OSError as error:
        raise InputError(
            f"cannot read {path}: {error.strerror}", remedy="record or import the run again"
        ) from error
    columns: dict[str, NDArray[Any]] = {}
    for name, dtype, offset in _places(table, declared.num_rows):
        values = np.frombuffer(content, dtype, declared.num_rows, offset) if size else ()
        columns[name] = np.asarray(values, dtype=dtype)
        if isal_zlib.crc32(columns[name]) != declared.crc32.get(name):
            raise damaged(path, "it is not the one that run.json was written with")
    return table(**columns)


def damaged(path: Path, how: str) -> FileFormatError:
    return FileFormatError(
        f"{path} is damaged: {how}", remedy="remove run.json and read the recording again"
    )


def _places(table: type[Table], num_rows: int) -> Iterator[tuple[str, np.dtype[Any], int]]:
    """Name, type and offset of each column."""
    offset = 0
    for name, dtype in table.schema():
        yield name, dtype, offset
        offset += -(-num_rows * dtype.itemsize // _ALIGNMENT) * _ALIGNMENT


def _file_bytes(table: type[Table], num_rows: int) -> int:
    _, dtype, offset = list(_places(table, num_rows))[-1]
    return offset + num_rows * dtype.itemsize
