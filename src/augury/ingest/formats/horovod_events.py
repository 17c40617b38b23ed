"""Decodes a Horovod timeline: what happened to each tensor on rank 0."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from augury.core.errors import FileFormatError, LimitError
from augury.core.json_depth import bounded_depth
from augury.core.ledger import Ledger
from augury.ingest.formats.gzip_reader import read_unpacked
from augury.ingest.formats.merged_traces import closed_array
from augury.ingest.run_files import ReadBudget

MAX_EVENTS = 20_000_000
_MAX_RANKS = 1 << 14
_MAX_US = 3e15
_NEGOTIATE = "NEGOTIATE_"
_SHAPE = re.compile(r"\d{1,12}")
_ITEM_BYTES = {"64": 8, "32": 4, "16": 2, "8": 1, "bool": 1}


class _Args(msgspec.Struct, frozen=True, gc=False):
    name: str | None = None
    dtype: str | None = None
    shape: str | None = None
    epoch_us: int | None = msgspec.field(name="start_time_since_epoch_in_micros", default=None)


class _TimelineEvent(msgspec.Struct, frozen=True, gc=False):
    ph: str = ""
    name: str | int = ""
    pid: int | str = 0
    ts: float = 0.0
    args: _Args | None = None


@dataclass(slots=True, kw_only=True)
class Activity:
    """A part of an operation, such as a copy into the fusion buffer."""

    name: str
    start_us: float
    end_us: float


@dataclass(slots=True, kw_only=True)
class TensorOperation:
    """One collective operation on one tensor."""

    tensor: str
    name: str
    start_us: float
    end_us: float
    size_bytes: int
    negotiated_us: tuple[float, float] | None
    """Start and end of the negotiation before it."""
    ready_us: dict[int, float] = field(default_factory=dict)
    """Time at which each rank was ready."""
    activities: list[Activity] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class HorovodTimeline:
    operations: list[TensorOperation]
    """In order of their starts."""
    world_size: int
    epoch_us: int
    """Start of the timeline since 1970."""


def read_horovod(path: Path, ledger: Ledger, budget: ReadBudget | None = None) -> HorovodTimeline:
    """A timeline that was cut off is read as far as it is complete."""
    data = read_unpacked(path, budget=budget, allow_truncated=True)
    events = _decode(path, data.strip(), ledger)
    if len(events) > MAX_EVENTS:
        raise LimitError(
            f"{path} has {len(events):,} events; the limit is {MAX_EVENTS:,}",
            remedy="record a shorter timeline",
        )
    sane = [event for event in events if abs(event.ts) < _MAX_US]
    ledger.note(
        "absurd-time",
        "an event has an impossible time",
        count=len(events) - len(sane),
        example=path.name,
    )
    names: dict[int | str, str] = {}
    epoch_us = 0
    of_tensor: dict[int | str, list[_TimelineEvent]] = defaultdict(list)
    for event in sane:
        if event.ph == "M" and event.name == "process_name" and event.args is not None:
            names[event.pid] = event.args.name or ""
            epoch_us = event.args.epoch_us or epoch_us
        elif event.ph in ("B", "E", "X"):
            of_tensor[event.pid].append(event)
    operations = [
        operation
        for pid, own in of_tensor.items()
        for operation in _operations(names.get(pid) or f"tensor {pid}", own)
    ]
    operations.sort(key=lambda operation: (operation.start_us, operation.tensor))
    ranks = [rank for operation in operations for rank in operation.ready_us]
    return HorovodTimeline(
        operations=operations,
        world_size=max(ranks, default=0) + 1,
        epoch_us=epoch_us if 0 <= epoch_us < _MAX_US else 0,
    )


def _decode(path: Path, data: bytes, ledger: Ledger) -> list[_TimelineEvent]:
    """Decodes the events; the last one of a timeline that was cut off is dropped."""
    decode = msgspec.json.Decoder(list[_TimelineEvent]).decode
    try:
        return decode(closed_array(bounded_depth(data)))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        cut = data.rfind(b"},")
        try:
            events = decode(data[: cut + 1] + b"]") if cut > 0 else []
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            events = []
        if not events:
            raise FileFormatError(
                f"{path} is not a Horovod timeline ({str(error)[:200]})",
                remedy="give the file that HOROVOD_TIMELINE names",
            ) from error
    ledger.note(
        "cut-timeline", "the timeline was cut off; its last event is dropped", example=path.name
    )
    return events


def _operations(tensor: str, events: list[_TimelineEvent]) -> Iterator[TensorOperation]:
    """Yields the operations on one tensor from its begins and ends, in the order of the file."""
    negotiated: tuple[float, float] | None = None
    ready: dict[int, float] = {}
    opened: list[tuple[str, float]] = []
    activities: list[Activity] = []
    for event in events:
        if event.ph == "X":
            rank = str(event.name)
            if rank.isascii() and rank.isdecimal() and int(rank) < _MAX_RANKS:
                ready.setdefault(int(rank), event.ts)
            continue
        if event.ph == "B":
            opened.append((str(event.name)[:200], event.ts))
            continue
        if not opened:
            continue
        name, start_us = opened.pop()
        end_us = max(event.ts, start_us)
        if name.startswith(_NEGOTIATE):
            negotiated = start_us, end_us
        elif opened:
            activities.append(Activity(name=name, start_us=start_us, end_us=end_us))
        else:
            yield TensorOperation(
                tensor=tensor[:500],
                name=name,
                start_us=start_us,
                end_us=end_us,
                size_bytes=_size_bytes(event.args),
                negotiated_us=negotiated,
                ready_us=ready,
                activities=activities,
            )
            negotiated, ready, activities = None, {}, []


def _size_bytes(args: _Args | None) -> int:
    """Returns the size of a tensor from its type and shape, such as ``float32`` and ``[64, 3]``;
    0 if unknown."""
    if args is None or args.dtype is None or args.shape is None:
        return 0
    size = next((size for part, size in _ITEM_BYTES.items() if part in args.dtype), 0)
    for length in _SHAPE.findall(args.shape)[:32]:
        size = min(size * int(length), 1 << 60)
    return size
