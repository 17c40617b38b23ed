"""Decodes the events of a Kineto file into columns: by the kernel's scan, else by msgspec.

The scan reads the file in pieces and refuses whatever is unusual. The file is then decoded as a
whole by msgspec, which defines what is accepted, and explains what is wrong. Both give the same
columns.
"""

from __future__ import annotations

import codecs
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from augury.core.columns import F8, I4, I8
from augury.core.errors import FileFormatError, LimitError
from augury.core.json_depth import bounded_depth
from augury.core.string_table import StringColumn
from augury.ingest.formats.gzip_reader import read_unpacked, unpacked_chunks
from augury.ingest.formats.memory_events import MEMORY_EVENT, MemoryEvents, memory_numbers
from augury.ingest.run_files import ReadBudget
from augury.ingest.vocabulary.phase_words import MODULE_FRAME
from augury.ingest.vocabulary.torch import COMMUNICATION_PREFIXES, is_communication

MAX_EVENTS = 20_000_000
MAX_NAME_CHARS = 2_000
_MAX_ID = 10**18
"""Numbers beyond it are no identifiers."""
FRAME_CATEGORY = "python_function"
_SKIPPED_CATEGORIES = ("Trace", "gpu_user_annotation", "overhead")
_OLD_CATEGORIES = {
    "Kernel": "kernel",
    "Memcpy": "gpu_memcpy",
    "Memset": "gpu_memset",
    "Operator": "cpu_op",
    "Runtime": "cuda_runtime",
}
"""Categories of the first versions of Kineto, and what they are called now."""
_NO_NUMBER = re.compile(rb"(:\s*)-?(?:nan|inf|infinity)(?=\s*[,}\]])", re.IGNORECASE)
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_NOTHING = msgspec.Raw()
_NUMBERS = (("sequence", -1), ("forward_thread", 0), ("correlation", 0), ("external", 0))
"""Columns of numbers among the arguments, with the value that stands for none."""

Address = tuple[int | str, int | str]
"""Process and thread, as the file names them."""


class Args(msgspec.Struct, frozen=True, gc=False):
    """Arguments of an event; ``Raw`` where versions of Kineto differ in the type."""

    sequence: int | None = msgspec.field(name="Sequence number", default=None)
    forward_thread: int | None = msgspec.field(name="Fwd thread id", default=None)
    correlation: int | None = None
    external: int | None = msgspec.field(name="External id", default=None)
    stream: int | str | None = None
    device: int | str | None = None
    size_bytes: float | str | None = msgspec.field(name="bytes", default=None)
    input_dims: msgspec.Raw = msgspec.field(name="Input Dims", default=_NOTHING)
    input_types: msgspec.Raw = msgspec.field(name="Input type", default=_NOTHING)
    collective: str | None = msgspec.field(name="Collective name", default=None)
    in_elements: int | None = msgspec.field(name="In msg nelems", default=None)
    out_elements: int | None = msgspec.field(name="Out msg nelems", default=None)
    group_size: int | None = msgspec.field(name="Group size", default=None)
    dtype: str | None = None
    group_name: str | int | None = msgspec.field(name="Process Group Name", default=None)
    group_ranks: msgspec.Raw = msgspec.field(name="Process Group Ranks", default=_NOTHING)
    collective_number: int | None = msgspec.field(name="Seq", default=None)
    source: int | str | None = msgspec.field(name="Src Rank", default=None)
    destination: int | str | None = msgspec.field(name="Dst Rank", default=None)
    is_asynchronous: msgspec.Raw = msgspec.field(name="Is asynchronized op", default=_NOTHING)
    name: str | None = None


class GroupConfig(msgspec.Struct, frozen=True):
    pg_name: str | int = ""
    ranks: list[int] = []


class DistributedInfo(msgspec.Struct, frozen=True):
    backend: str = ""
    rank: int | None = None
    world_size: int | None = None
    pg_config: list[GroupConfig] = []


class KinetoHead(msgspec.Struct, frozen=True):
    """Facts about the whole file."""

    baseTimeNanoseconds: int = 0  # noqa: N815
    distributedInfo: DistributedInfo | None = None  # noqa: N815
    host_name: str = ""
    deviceProperties: msgspec.Raw = _NOTHING  # noqa: N815


class _CommonArgs(msgspec.Struct, frozen=True, gc=False):
    """Arguments that become columns, and the name of a thread."""

    sequence: int | None = msgspec.field(name="Sequence number", default=None)
    forward_thread: int | None = msgspec.field(name="Fwd thread id", default=None)
    correlation: int | None = None
    external: int | None = msgspec.field(name="External id", default=None)
    size_bytes: float | str | None = msgspec.field(name="bytes", default=None)
    name: str | None = None


class _Event(msgspec.Struct, frozen=True, gc=False):
    ph: str = ""
    cat: str | None = None
    name: str = ""
    pid: int | str = 0
    tid: int | str = 0
    ts: float = 0
    dur: float = 0
    args: msgspec.Raw = _NOTHING


class _KinetoFile(KinetoHead, frozen=True, kw_only=True):
    traceEvents: list[_Event]  # noqa: N815


@dataclass(frozen=True, kw_only=True)
class EventColumns:
    """Complete events in order of the file; of Python's frames those of modules, and maybe more."""

    head: KinetoHead
    addresses: list[Address]
    thread: I4
    """Index into ``addresses``."""
    thread_names: dict[Address, str]
    name: StringColumn
    category: StringColumn
    start_us: F8
    dur_us: F8
    sequence: I8
    """Sequence number of autograd; -1 for none."""
    forward_thread: I8
    """Not 0 for a node of the backward graph."""
    correlation: I8
    external: I8
    size_bytes: I8
    args: dict[int, Args]
    """All arguments of the events that communicate, by row."""
    memory: MemoryEvents
    """Events of the allocators of devices; their threads are indices into ``addresses``."""
    is_repaired: bool = False
    """Whether the file had values or bytes that JSON does not allow."""


def read_events(path: Path, budget: ReadBudget | None = None) -> EventColumns:
    """Raises an InputError for other formats."""
    left_bytes = 0 if budget is None else budget.left_bytes
    try:
        found = _scanned(path, budget) or _decoded(path, budget)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        if budget is not None:
            budget.left_bytes = left_bytes  # the file is read again
        repaired = _repaired(path, budget)
        if repaired is None:
            raise FileFormatError(
                f"{path} is not a trace of torch's profiler ({str(error)[:200]})",
                remedy="give the complete JSON that export_chrome_trace writes",
            ) from error
        found = repaired
    strings = [_OLD_CATEGORIES.get(each, each) for each in found.category.strings]
    return replace(found, category=StringColumn(found.category.number, strings))


def _repaired(path: Path, budget: ReadBudget | None) -> EventColumns | None:
    """Returns the events of a file that is JSON but for a mark at its beginning, infinite
    bandwidths of copies, or names with bytes of other encodings, all of which profilers wrote; None
    if there is more wrong with it."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    # A question mark is no longer than the byte that it stands for.
    chunks = (decoder.decode(chunk) for chunk in unpacked_chunks(path, budget=budget))
    data = b"".join(chunk.replace("\ufffd", "?").encode() for chunk in chunks)
    data = data.removeprefix(_BYTE_ORDER_MARK)
    try:
        return replace(_of_json(path, _NO_NUMBER.sub(rb"\1null", data)), is_repaired=True)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _scanned(path: Path, budget: ReadBudget | None) -> EventColumns | None:
    """Returns None if there is no kernel, or if it refuses the file."""
    try:
        from augury._native import KinetoScan  # noqa: PLC0415
    except ImportError:
        return None
    scan = KinetoScan(
        list(_SKIPPED_CATEGORIES),
        (FRAME_CATEGORY, MODULE_FRAME),
        list(COMMUNICATION_PREFIXES),
        secrets.randbits(64),
    )
    left_bytes = 0 if budget is None else budget.left_bytes
    for chunk in unpacked_chunks(path, budget=budget):
        if not scan.feed(chunk):
            return None
        _check_count(path, scan.num_events)
    if not scan.finish():
        if budget is not None:
            budget.left_bytes = left_bytes  # the file is read again
        return None
    found = scan.take()
    head = b",".join(b'"%s":%s' % (key.encode(), raw) for key, raw in found["head"].items())
    addresses = {raw: _address(raw) for raw in found["threads"]}
    names = _strings(found["names"])
    return EventColumns(
        head=msgspec.json.decode(bounded_depth(b"{%s}" % head), type=KinetoHead),
        addresses=list(addresses.values()),
        thread=found["thread"],
        thread_names={
            addresses[raw]: msgspec.json.decode(name, type=str)
            for raw, name in found["thread_names"].items()
            if raw in addresses
        },
        name=StringColumn(found["name"], [name[:MAX_NAME_CHARS] for name in names]),
        category=StringColumn(found["category"], _strings(found["categories"])),
        start_us=found["start_us"],
        dur_us=found["dur_us"],
        sequence=found["sequence"],
        forward_thread=found["forward_thread"],
        correlation=found["correlation"],
        external=found["external"],
        size_bytes=found["size_bytes"],
        args=_args(found["kept_args"], names, found["name"]),
        memory=MemoryEvents.of(found["memory_thread"], found["memory_us"], found["memory_numbers"]),
    )


def _strings(raw: list[bytes]) -> list[str]:
    return msgspec.json.decode(b'["%s"]' % b'","'.join(raw), type=list[str]) if raw else []


def _address(raw: bytes) -> Address:
    pid, tid = raw.split(b"\0")
    address: Address = msgspec.json.decode(b"[%s,%s]" % (pid, tid), type=Address)
    return address


def _decoded(path: Path, budget: ReadBudget | None) -> EventColumns:
    return _of_json(path, read_unpacked(path, budget=budget))


def _of_json(path: Path, data: bytes) -> EventColumns:
    file = msgspec.json.decode(bounded_depth(data), type=_KinetoFile)
    _check_count(path, len(file.traceEvents))
    args_of = msgspec.json.Decoder(_CommonArgs | None).decode
    none = _CommonArgs()
    all_args = [(args_of(e.args) or none) if e.args else none for e in file.traceEvents]
    events = [
        (event, args)
        for event, args in zip(file.traceEvents, all_args, strict=True)
        if event.ph == "X" and _is_kept(event)
    ]
    allocations = [
        (event, numbers)
        for event in file.traceEvents
        if event.ph == "i" and event.name == MEMORY_EVENT
        if (numbers := memory_numbers(event.args)) is not None
    ]
    is_used = {id(event) for event, _ in events} | {id(event) for event, _ in allocations}
    addresses: dict[Address, int] = {}
    for each in file.traceEvents:
        if id(each) in is_used:
            addresses.setdefault((each.pid, each.tid), len(addresses))
    threads = [addresses[e.pid, e.tid] for e, _ in events]
    names, name = _numbered(e.name for e, _ in events)
    categories, category = _numbered(e.cat or "" for e, _ in events)
    raw = {i: bytes(e.args) for i, (e, _) in enumerate(events) if is_communication(e.name)}
    return EventColumns(
        head=file,
        addresses=list(addresses),
        thread=np.array(threads, dtype=np.int32),
        thread_names={
            (event.pid, event.tid): args.name
            for event, args in zip(file.traceEvents, all_args, strict=True)
            if event.ph == "M" and event.name == "thread_name" and args.name
        },
        name=StringColumn(name, [each[:MAX_NAME_CHARS] for each in names]),
        category=StringColumn(category, categories),
        start_us=np.array([e.ts for e, _ in events], dtype=np.float64),
        dur_us=np.array([e.dur for e, _ in events], dtype=np.float64),
        size_bytes=np.array([_size_bytes(a.size_bytes) for _, a in events], dtype=np.int64),
        args=_args(raw, names, name),
        is_repaired=False,
        memory=MemoryEvents.of(
            np.array([addresses[e.pid, e.tid] for e, _ in allocations], dtype=np.int32),
            np.array([e.ts for e, _ in allocations], dtype=np.float64),
            np.array([numbers for _, numbers in allocations], dtype=np.int64),
        ),
        **{
            field: np.array([_number(getattr(a, field), none) for _, a in events], dtype=np.int64)
            for field, none in _NUMBERS
        },
    )


def _is_kept(event: _Event) -> bool:
    if event.cat == FRAME_CATEGORY:
        return event.name.startswith(MODULE_FRAME)
    return event.cat not in _SKIPPED_CATEGORIES


def _numbered(strings: Iterable[str]) -> tuple[list[str], I4]:
    numbers: dict[str, int] = {}
    column = [numbers.setdefault(string, len(numbers)) for string in strings]
    return list(numbers), np.array(column, dtype=np.int32)


def _number(value: int | None, none: int) -> int:
    return none if value is None or abs(value) >= _MAX_ID else value


def _size_bytes(value: float | str | None) -> int:
    """Some profilers write the number as text."""
    if isinstance(value, str):
        value = int(value) if value.isascii() and value.isdigit() and len(value) < 18 else None
    return int(value) if value is not None and 0 <= value < 1 << 60 else 0


def _args(raw: dict[int, bytes], names: list[str], name: I4) -> dict[int, Args]:
    decode = msgspec.json.Decoder(Args | None).decode
    found: dict[int, Any] = {
        row: decode(args)
        for row, args in raw.items()
        if args and is_communication(names[name[row]])
    }
    return {row: args for row, args in found.items() if args is not None}


def _check_count(path: Path, count: int) -> None:
    if count > MAX_EVENTS:
        raise LimitError(
            f"{path} has {count:,} events; the limit is {MAX_EVENTS:,}",
            remedy="record fewer steps",
        )
