"""Packs the files of the wire recorder: compressed copies without unused rows.

Only the standard library is used, because this also runs in the job's processes. docs/wire.md
describes the layout.
"""

from __future__ import annotations

import gzip
import mmap
import os
import re
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

from augury.capture.process_identity import rank_name

PACKED = ".wire.gz"
RAW = ".bin"
NAME = re.compile(
    r"(?P<who>process|rank-(?P<rank>[0-9]{5,9}))\.wire-(?P<pid>[0-9]{1,10})-(?P<start>[0-9a-f]{1,16})"
    r"(?P<end>\.bin|\.wire\.gz)"
)

MAX_CONNECTIONS = 1 << 16
MAX_EVENTS = 1 << 26
MAX_COUNT = 1 << 53
CONNECTION_BYTES = 128
EVENT_BYTES = 64

_HEADER = struct.Struct("<8s4I8Q2q2Q64s")
_HEADER_BYTES = 4096
_SIGNATURE = (b"AUGWIRE1", 1, _HEADER_BYTES, CONNECTION_BYTES, EVENT_BYTES)
_ROWS_AT_ONCE = 1 << 15


@dataclass(frozen=True, slots=True, kw_only=True)
class WireHeader:
    """Header of a process's file, field by field."""

    max_connections: int
    max_events: int
    num_connections: int
    num_events: int
    connections_lost: int
    is_kept: int
    calls_not_kept: int
    bytes_not_kept: int
    pid: int
    rank: int
    realtime_ns: int
    monotonic_ns: int
    host: bytes

    @property
    def host_name(self) -> str:
        return self.host.split(b"\0", 1)[0].decode(errors="replace")

    @property
    def num_bytes(self) -> int:
        connections = self.max_connections * CONNECTION_BYTES
        return _HEADER_BYTES + connections + self.max_events * EVENT_BYTES

    def to_bytes(self) -> bytes:
        fields = (getattr(self, name) for name in WireHeader.__slots__)
        return _HEADER.pack(*_SIGNATURE, *fields).ljust(_HEADER_BYTES, b"\0")


def read_header(data: bytes) -> WireHeader:
    """Decodes the header. Raises a ValueError if the bytes are not a valid one."""
    if len(data) < _HEADER_BYTES:
        raise ValueError("the file is truncated")
    values = _HEADER.unpack_from(data)
    if values[:5] != _SIGNATURE:
        raise ValueError("the file is not a record of TCP traffic")
    header = WireHeader(**dict(zip(WireHeader.__slots__, values[5:], strict=True)))
    if header.max_connections > MAX_CONNECTIONS or header.max_events > MAX_EVENTS:
        raise ValueError("the file is too large")
    counts = (header.num_events, header.connections_lost, header.calls_not_kept)
    if header.num_connections > header.max_connections or max(counts) > MAX_COUNT:
        raise ValueError("the header contradicts itself")
    return header


def wire_header_of(path: Path) -> WireHeader:
    """Reads the header of a raw or packed file."""
    with path.open("rb") as file:
        if not path.name.endswith(PACKED):
            return read_header(file.read(_HEADER_BYTES))
        with gzip.GzipFile(fileobj=file) as unzipped:
            return read_header(unzipped.read(_HEADER_BYTES))


def pack_wire(path: Path) -> Path:
    """Writes a complete packed copy next to the file, or none. The process may still be writing:
    rows that change meanwhile are left out as incomplete."""
    packed = path.with_name(path.name.removesuffix(RAW) + PACKED)
    partial = path.with_name(f".{packed.name}.{os.getpid()}.partial")
    try:
        with (
            path.open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
            partial.open("wb") as out,
            gzip.GzipFile("", "wb", 1, out, mtime=0) as zipped,
        ):
            for part in _packed(data):
                zipped.write(part)
        partial.replace(packed)
    finally:
        partial.unlink(missing_ok=True)
    return packed


def _packed(data: mmap.mmap) -> Iterator[bytes]:
    header = read_header(data[:_HEADER_BYTES])
    if len(data) < header.num_bytes:
        raise ValueError("the file is truncated")
    first_event = header.num_bytes - header.max_events * EVENT_BYTES
    runs = list(_whole_runs(data, first_event, header))
    num_whole = sum(count for _, _, count in runs)
    small = replace(header, max_connections=header.num_connections, max_events=num_whole)
    yield small.to_bytes()
    yield data[_HEADER_BYTES : _HEADER_BYTES + header.num_connections * CONNECTION_BYTES]
    for slot, number, count in runs:
        at = first_event + slot * EVENT_BYTES
        rows = data[at : at + count * EVENT_BYTES]
        if _numbers(rows) == list(range(number, number + count)) == _numbers_at(data, at, count):
            yield rows
        else:  # overwritten between the two reads
            yield bytes(count * EVENT_BYTES)


def _whole_runs(
    data: mmap.mmap, first_event: int, header: WireHeader
) -> Iterator[tuple[int, int, int]]:
    """Yields slot, number and count of consecutive complete rows, in the order of numbers."""
    event = max(0, header.num_events - header.max_events)
    while event < header.num_events:
        slot = event % header.max_events
        count = min(_ROWS_AT_ONCE, header.max_events - slot, header.num_events - event)
        numbers = _numbers_at(data, first_event + slot * EVENT_BYTES, count)
        is_whole = [number == event + 1 + i for i, number in enumerate(numbers)]
        begin = 0
        for good, run in groupby(is_whole):
            length = len(list(run))
            if good:
                yield slot + begin, event + 1 + begin, length
            begin += length
        event += count


def _numbers_at(data: mmap.mmap, at: int, count: int) -> list[int]:
    return _numbers(data[at : at + count * EVENT_BYTES])


def _numbers(rows: bytes) -> list[int]:
    return memoryview(rows).cast("Q")[:: EVENT_BYTES // 8].tolist()


def pack_own(folder: Path) -> None:
    """Packs the file of this process, which continues to write."""
    for path in folder.glob(f"*.wire-{os.getpid()}-*{RAW}"):
        if _is_of_this_host(path):
            pack_wire(path)


def pack_left(folder: Path, *, rank: int | None = None) -> None:
    """Packs the files of ended processes of this host, or only those of a rank, and removes the
    raw files. This process counts as ended. Files that cannot be packed stay."""
    prefix = "*" if rank is None else rank_name(rank)
    for path in sorted(folder.glob(f"{prefix}.wire-*{RAW}")):
        with suppress(OSError, ValueError):
            if _is_of_this_host(path) and not _is_written_by_another(path):
                pack_wire(path)
                path.unlink(missing_ok=True)


def drop_former(folder: Path, rank: int) -> None:
    """Removes the files of processes that were this rank before its restart."""
    for path in folder.glob(f"{rank_name(rank)}.wire-*"):
        name = NAME.fullmatch(path.name)
        if name is not None and not Path("/proc", name["pid"]).exists():
            path.unlink(missing_ok=True)


def _is_of_this_host(path: Path) -> bool:
    return wire_header_of(path).host_name == socket.gethostname()[:63]


def _is_written_by_another(path: Path) -> bool:
    name = NAME.fullmatch(path.name)
    if name is None or int(name["pid"]) == os.getpid():
        return False
    try:
        maps = Path("/proc", name["pid"], "maps").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return False
    except OSError:
        return True
    return os.fsencode(path.name) in maps
