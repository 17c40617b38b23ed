"""What one rank says of itself: ``rank-00000.json``, which may be anything."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import msgspec

from augury.core.ledger import Ledger, Severity

MAX_RECORD_BYTES = 256 << 20
MAX_RANKS = 1 << 20
MAX_STEPS = 10_000_000
_FILE_NAME = re.compile(r"rank-\d+(\.\d+)?\.trace\.json(\.gz)?", re.ASCII)

_Time = Annotated[int, msgspec.Meta(ge=0, le=3_000_000_000_000_000_000)]
_Size = Annotated[int, msgspec.Meta(ge=0, le=1 << 60)]
_Rank = Annotated[int, msgspec.Meta(ge=0, lt=MAX_RANKS)]
_Step = Annotated[int, msgspec.Meta(ge=0, le=MAX_STEPS)]


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """Steps ``first + 1`` to ``last`` are inside."""

    first: _Step
    last: _Step
    mode: str = "light"
    trace: str | None = None

    @property
    def is_detailed(self) -> bool:
        return self.mode == "detail"


class Group(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    ranks: list[_Rank]
    backend: str = ""


class Parameter(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    size_bytes: _Size
    dtype: str = ""


class Bucket(msgspec.Struct, frozen=True, kw_only=True):
    size_bytes: _Size
    parameters: list[int]


class Ddp(msgspec.Struct, frozen=True, kw_only=True):
    group: str = "0"
    parameters: list[Parameter] = []
    buckets: list[Bucket] = []
    ready_order: list[int] = []
    bucket_cap_bytes: int | None = None
    first_bucket_cap_bytes: int | None = None
    gradient_as_bucket_view: bool | None = None
    find_unused_parameters: bool | None = None


class Call(msgspec.Struct, frozen=True, array_like=True):
    start_ns: _Time
    end_ns: _Time
    kind: str
    group: str
    sequence: int
    size_bytes: int = 0
    peer: int = -1
    waited_from_ns: _Time = 0
    """When the program waited for it; 0: it did not, or nobody saw it."""
    waited_until_ns: _Time = 0


class StepCpu(msgspec.Struct, frozen=True, array_like=True):
    step: int
    main_cpu_ns: int
    main_delay_ns: int
    process_cpu_ns: int


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    kind: str
    layer: str = ""
    size_bytes: _Size


class Handshake(msgspec.Struct, frozen=True, kw_only=True):
    """``t0, t3`` by this rank's clock, ``t1, t2`` by the peer's."""

    peer: _Rank = 0
    moment: str = ""
    exchanges: list[tuple[_Time, _Time, _Time, _Time]] = []


class CalibrationRecord(msgspec.Struct, frozen=True, kw_only=True):
    collective: str = "all_reduce"
    group: str = "0"
    size_bytes: _Size
    concurrent: int = 1
    beside_compute: bool = False
    durations_ns: list[_Time] = []
    compute_rate: float | None = None


class RankRecord(msgspec.Struct, frozen=True, kw_only=True):
    schema_version: int = 1
    rank: _Rank
    world_size: Annotated[int, msgspec.Meta(ge=1, le=MAX_RANKS)]
    host: str = ""
    framework: str = ""
    cores: int | None = 0
    command: list[str] = []
    trouble: str | None = None
    windows: list[Window] = []
    step_end_ns: Annotated[list[_Time], msgspec.Meta(max_length=MAX_STEPS)] = []
    resumed: list[tuple[_Step, _Time]] = []
    step_cpu: list[StepCpu] = []
    groups: list[Group] = []
    ddp: list[Ddp] = []
    calls: list[Call] = []
    modules: dict[str, str] = {}
    memory: list[Memory] = []
    handshake: list[Handshake] = []
    calibration: list[CalibrationRecord] = []
    # As the first version said it:
    window: tuple[_Step, _Step] | None = None
    trace: str | None = None

    def __post_init__(self) -> None:
        names = [w.trace for w in self.windows] + [self.trace]
        if any(name is not None and not _FILE_NAME.fullmatch(name) for name in names):
            raise ValueError("a trace has a name that is no trace's")
        if any(window.last <= window.first for window in self.windows):
            raise ValueError("a window ends before it begins")
        if any(a > b for a, b in zip(self.step_end_ns, self.step_end_ns[1:], strict=False)):
            raise ValueError("its steps do not end one after the other")

    @property
    def all_windows(self) -> list[Window]:
        if self.window is None or self.windows:
            return self.windows
        first, last = self.window
        return [Window(first=first, last=last, trace=self.trace)] if last > first else []


def read_records(folder: Path, ledger: Ledger) -> list[RankRecord]:
    """By rank; what cannot be read, or speaks of another job, is named in the ledger."""
    records: dict[int, RankRecord] = {}
    for path in sorted(folder.glob("rank-*.json")):
        if _FILE_NAME.fullmatch(path.name):
            continue
        record = _read(path, ledger)
        if record is None:
            continue
        if record.rank in records:
            ledger.note(
                "rank-twice",
                "two records are of the same rank: the first is taken",
                severity=Severity.ERROR,
                example=path.name,
            )
            continue
        records[record.rank] = record
    found = [records[rank] for rank in sorted(records)]
    _note_gaps(found, ledger)
    return found


def world_size(records: list[RankRecord]) -> int:
    return max((r.world_size for r in records), default=0)


def _read(path: Path, ledger: Ledger) -> RankRecord | None:
    try:
        if path.stat().st_size > MAX_RECORD_BYTES:
            raise ValueError("it is too large")
        return msgspec.json.decode(path.read_bytes(), type=RankRecord)
    except (OSError, ValueError, RecursionError) as error:
        ledger.note(
            "unreadable-record",
            "a rank's record cannot be read",
            severity=Severity.ERROR,
            example=f"{path.name}: {str(error)[:300]}",
        )
        return None


def _note_gaps(records: list[RankRecord], ledger: Ledger) -> None:
    sizes = sorted({r.world_size for r in records})
    if len(sizes) > 1:
        ledger.note(
            "mismatched-world-size",
            "ranks disagree on how many there are: the largest number is taken",
            severity=Severity.ERROR,
            remedy="record one job into one folder",
            example=", ".join(map(str, sizes[:5])),
        )
    outside = [r.rank for r in records if r.rank >= world_size(records)]
    ledger.note(
        "rank-beyond-world",
        "a rank's number is not below the number of ranks",
        count=len(outside),
        severity=Severity.ERROR,
        example=f"rank {outside[0]}" if outside else "",
    )
    present = {r.rank for r in records}
    size = world_size(records)
    missing = [rank for rank in range(size) if rank not in present]
    ledger.note(
        "missing-rank",
        "a rank left no record",
        count=len(missing),
        severity=Severity.ERROR,
        remedy="look at that rank's output: it may have been killed",
        example=f"rank {missing[0]}" if missing else "",
    )
