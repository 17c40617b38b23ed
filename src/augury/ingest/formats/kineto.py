"""Reads traces of torch's profiler (Kineto): Chrome trace JSON with times in microseconds.

Only complete events are read. Python functions (``with_stack``) are left out: they are no
operations.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from augury.core.columns import I4, I8
from augury.core.errors import FileFormatError, LimitError
from augury.core.ledger import Ledger
from augury.ingest.formats.gzip_reader import read_unpacked
from augury.ingest.run_files import ReadBudget
from augury.ingest.trace_builder import enclosing

MAX_EVENTS = 20_000_000
MAX_NAME_CHARS = 2_000
_MAX_US = 3e15
_MAX_NS = 3 * 10**18
"""A time after 2060, with room for clock offsets and durations."""
_MAX_DUR_US = 1e12
KERNEL_CATEGORY = "kernel"
COPY_CATEGORIES = frozenset({"gpu_memcpy", "gpu_memset"})
RUNTIME_CATEGORIES = frozenset({"cuda_runtime", "cuda_driver"})
_DEVICE_CATEGORIES = COPY_CATEGORIES | {KERNEL_CATEGORY}
_SKIPPED_CATEGORIES = frozenset({"python_function", "Trace", "gpu_user_annotation", "overhead"})


_NOTHING = msgspec.Raw()


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
    is_asynchronous: msgspec.Raw = msgspec.field(name="Is asynchronized op", default=_NOTHING)
    name: str | None = None


class _Event(msgspec.Struct, frozen=True, gc=False):
    ph: str = ""
    cat: str | None = None
    name: str = ""
    pid: int | str = 0
    tid: int | str = 0
    ts: float = 0
    dur: float = 0
    args: Args | None = None


class GroupConfig(msgspec.Struct, frozen=True):
    pg_name: str | int = ""
    ranks: list[int] = []


class DistributedInfo(msgspec.Struct, frozen=True):
    backend: str = ""
    rank: int | None = None
    world_size: int | None = None
    pg_config: list[GroupConfig] = []


class _KinetoFile(msgspec.Struct, frozen=True):
    traceEvents: list[_Event]  # noqa: N815
    baseTimeNanoseconds: int = 0  # noqa: N815
    distributedInfo: DistributedInfo | None = None  # noqa: N815
    host_name: str = ""


@dataclass(frozen=True, slots=True)
class Thread:
    """A thread of the process, or a stream of a device."""

    pid: int | str
    tid: int | str
    name: str
    is_device: bool


@dataclass(frozen=True, kw_only=True)
class KinetoTrace:
    """Events sorted by (thread, start, longest first), on the process's own clock."""

    thread: I4
    start_ns: I8
    dur_ns: I8
    parent: I4
    """Row of the innermost event around it on its thread; -1 on devices."""
    name: list[str]
    category: list[str]
    args: list[Args]
    threads: list[Thread]
    distributed: DistributedInfo
    host: str

    def __len__(self) -> int:
        return len(self.name)

    @property
    def is_on_device(self) -> NDArray[np.bool_]:
        """Whether each event ran on a stream of a device."""
        is_device = np.array([thread.is_device for thread in self.threads], dtype=bool)
        found: NDArray[np.bool_] = is_device[self.thread] if len(self) else is_device[:0]
        return found

    def named(self, prefix: str) -> Iterator[int]:
        """Rows of events whose names start with ``prefix``."""
        return (i for i, name in enumerate(self.name) if name.startswith(prefix))


_NO_ARGS = Args()


def read_kineto(path: Path, ledger: Ledger, budget: ReadBudget | None = None) -> KinetoTrace:
    """Raises an InputError for other formats; impossible events are dropped and counted."""
    data = read_unpacked(path, budget=budget)
    try:
        file = msgspec.json.decode(data, type=_KinetoFile)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise FileFormatError(
            f"{path} is not a trace of torch's profiler ({str(error)[:200]})",
            remedy="give the complete JSON that export_chrome_trace writes",
        ) from error
    del data
    if len(file.traceEvents) > MAX_EVENTS:
        raise LimitError(
            f"{path} has {len(file.traceEvents):,} events; the limit is {MAX_EVENTS:,}",
            remedy="record fewer steps",
        )
    if abs(file.baseTimeNanoseconds) > _MAX_NS:
        raise FileFormatError(
            f"{path} has an absurd base time ({file.baseTimeNanoseconds} ns)",
            remedy="record it again",
        )
    return _columns(file, path.name, ledger)


def _columns(file: _KinetoFile, source: str, ledger: Ledger) -> KinetoTrace:
    events = [e for e in file.traceEvents if e.ph == "X" and e.cat not in _SKIPPED_CATEGORIES]
    start_us = np.array([e.ts for e in events], dtype=np.float64)
    dur_us = np.array([e.dur for e in events], dtype=np.float64)
    sane = (np.abs(start_us) < _MAX_US) & (dur_us < _MAX_DUR_US)
    start_ns = nanoseconds(np.where(sane, start_us, 0)) + file.baseTimeNanoseconds
    sane &= np.abs(start_ns) < _MAX_NS
    ledger.note(
        "absurd-time",
        "an event has an impossible time or duration",
        count=int((~sane).sum()),
        example=source,
    )
    ledger.note(
        "negative-duration",
        "an event ends before it starts; its duration is set to 0",
        count=int((dur_us < 0).sum()),
        example=source,
    )
    if not sane.all():
        events = [e for e, keep in zip(events, sane.tolist(), strict=True) if keep]
        start_ns, dur_us = start_ns[sane], dur_us[sane]
    dur_ns = nanoseconds(np.maximum(dur_us, 0))
    threads, thread = _threads(file, events)
    order = np.lexsort((-dur_ns, start_ns, thread))
    picked = [events[i] for i in order.tolist()]
    thread, start_ns, dur_ns = thread[order], start_ns[order], dur_ns[order]
    device = np.array([each.is_device for each in threads], dtype=bool)
    parent = enclosing(thread, start_ns, dur_ns)
    if len(parent):
        parent[device[thread]] = -1
    return KinetoTrace(
        thread=thread,
        start_ns=start_ns,
        dur_ns=dur_ns,
        parent=parent,
        name=[e.name[:MAX_NAME_CHARS] for e in picked],
        category=[e.cat or "" for e in picked],
        args=[e.args or _NO_ARGS for e in picked],
        threads=threads,
        distributed=file.distributedInfo or DistributedInfo(),
        host=file.host_name,
    )


def nanoseconds(microseconds: NDArray[np.float64]) -> I8:
    """Converts whole part and fraction apart: their sum in nanoseconds has no exact float."""
    whole = np.floor(microseconds)
    rest: I8 = np.rint((microseconds - whole) * 1000).astype(np.int64)
    result: I8 = whole.astype(np.int64) * 1000 + rest
    return result


def _threads(file: _KinetoFile, events: list[_Event]) -> tuple[list[Thread], I4]:
    names = {
        (e.pid, e.tid): e.args.name
        for e in file.traceEvents
        if e.ph == "M" and e.name == "thread_name" and e.args is not None and e.args.name
    }
    numbers: dict[tuple[Any, Any], int] = {}
    devices: set[int] = set()
    column = np.empty(len(events), dtype=np.int32)
    for i, event in enumerate(events):
        number = numbers.setdefault((event.pid, event.tid), len(numbers))
        column[i] = number
        if event.cat in _DEVICE_CATEGORIES:
            devices.add(number)
    threads = [
        Thread(pid, tid, names.get((pid, tid), f"thread {tid}"), number in devices)
        for (pid, tid), number in numbers.items()
    ]
    return threads, column
