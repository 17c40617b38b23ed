"""Schema and reader of rank records (``rank-00000.json``), which are untrusted input."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import msgspec

from augury.core.errors import InputError
from augury.core.ledger import Ledger, Severity
from augury.core.plan.piece_log import PieceLog
from augury.core.plan.plan_status import MAX_REASON_CHARS, PlanStatus, TrainingMode
from augury.ingest.formats.gzip_reader import read_unpacked
from augury.ingest.run_files import ReadBudget, RunLimitError

MAX_RECORD_BYTES = 256 << 20
MAX_RANKS = 1 << 20
MAX_STEPS = 10_000_000
_FILE_NAME = re.compile(r"rank-\d+(\.\d+)?\.trace\.json(\.gz)?", re.ASCII)

_RECORD_NAME = re.compile(r"rank-\d+\.json", re.ASCII)

_Time = Annotated[int, msgspec.Meta(ge=0, le=3_000_000_000_000_000_000)]
_Delay = Annotated[int, msgspec.Meta(ge=-1, le=1 << 60)]
_Size = Annotated[int, msgspec.Meta(ge=0, le=1 << 60)]
_Rank = Annotated[int, msgspec.Meta(ge=0, lt=MAX_RANKS)]
_Step = Annotated[int, msgspec.Meta(ge=0, le=MAX_STEPS)]
_Reason = Annotated[str, msgspec.Meta(max_length=MAX_REASON_CHARS)]


class RecordedWindow(msgspec.Struct, frozen=True, kw_only=True):
    """Steps ``first + 1`` to ``last`` are inside."""

    first: _Step
    last: _Step
    mode: str = "light"
    trace: str | None = None
    training_mode: TrainingMode | None = None
    """How gradients were exchanged within; None: the job was given no plan."""

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


class RecordedBucket(msgspec.Struct, frozen=True, kw_only=True):
    size_bytes: _Size
    parameters: list[int]


class RecordedDdp(msgspec.Struct, frozen=True, kw_only=True):
    group: str = "0"
    parameters: list[Parameter] = []
    buckets: list[RecordedBucket] = []
    ready_order: list[int] = []
    bucket_cap_bytes: int | None = None
    first_bucket_cap_bytes: int | None = None
    gradient_as_bucket_view: bool | None = None
    find_unused_parameters: bool | None = None


class RecordedCall(msgspec.Struct, frozen=True, array_like=True):
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


class MachineReading(msgspec.Struct, frozen=True, array_like=True):
    at_ns: _Time
    busy_ns: _Size
    """CPU time of all processes of the machine."""
    process_cpu_ns: _Size


class RecordedMemory(msgspec.Struct, frozen=True, kw_only=True):
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
    job: str = ""
    """The same for all ranks of one start of a job; empty where the ranks did not meet."""
    start: Annotated[int, msgspec.Meta(ge=0)] = 0
    """How often the launcher had started the ranks again."""
    framework: str = ""
    cores: int | None = 0
    command: list[str] = []
    trouble: str | None = None
    windows: list[RecordedWindow] = []
    step_end_ns: Annotated[list[_Time], msgspec.Meta(max_length=MAX_STEPS)] = []
    resumed: list[tuple[_Step, _Time]] = []
    step_cpu: list[StepCpu] = []
    step_delay_ns: Annotated[list[_Delay], msgspec.Meta(max_length=MAX_STEPS)] = []
    """How long the training thread had no core, since its beginning, at the end of every step."""
    speed: Annotated[list[tuple[_Step, _Size]], msgspec.Meta(max_length=MAX_STEPS)] = []
    """After which step, and how long: a copy of memory, always the same."""
    machine: Annotated[list[MachineReading], msgspec.Meta(max_length=2)] = []
    """At the first window's opening and at the end."""
    groups: list[Group] = []
    ddp: list[RecordedDdp] = []
    calls: list[RecordedCall] = []
    modules: dict[str, str] = {}
    memory: list[RecordedMemory] = []
    handshake: list[Handshake] = []
    calibration: list[CalibrationRecord] = []
    plan: PlanStatus | msgspec.UnsetType | None = msgspec.UNSET
    """None: the job was given none; unset: the recorder did not look."""
    pieces: PieceLog | None = None
    """Of steps under a plan: what no profiler sees."""
    refusals: Annotated[list[_Reason], msgspec.Meta(max_length=100)] = []
    """Why the runtime would follow no plan of pieces."""
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
        if self.pieces is not None and not _are_whole(self.pieces):
            raise ValueError("the times of its pieces do not fit their number")

    @property
    def all_windows(self) -> list[RecordedWindow]:
        if self.window is None or self.windows:
            return self.windows
        first, last = self.window
        return [RecordedWindow(first=first, last=last, trace=self.trace)] if last > first else []


def _are_whole(pieces: PieceLog) -> bool:
    for step in pieces.steps:
        if step.order >= len(pieces.orders):
            return False
        number = len(pieces.orders[step.order])
        times = (step.issued_ns, step.arrived_ns, step.waited_from_ns, step.waited_until_ns)
        if any(len(each) != number for each in times):
            return False
    return True


def read_records(folder: Path, ledger: Ledger, budget: ReadBudget) -> list[RankRecord]:
    """Returns the records in order of ranks; unreadable ones are noted in the ledger. Raises an
    InputError if the records belong to two jobs."""
    read: dict[str, RankRecord] = {}
    for path in sorted(folder.glob("rank-*.json")):
        if _FILE_NAME.fullmatch(path.name):
            continue
        record = _read(path, ledger, budget)
        if record is not None:
            read[path.name] = record
    read = _only_last_start(read, ledger)
    _refuse_two_jobs(folder, list(read.values()))
    records: dict[int, RankRecord] = {}
    for name, record in read.items():
        if record.rank in records:
            ledger.note(
                "rank-twice",
                "two records have the same rank; the first is used",
                severity=Severity.ERROR,
                example=name,
            )
            continue
        records[record.rank] = record
    found = [records[rank] for rank in sorted(records)]
    _note_gaps(found, ledger)
    return found


def is_rank_record(path: Path) -> bool:
    """Returns whether the file is a rank record rather than a trace with such a name."""
    if not _RECORD_NAME.fullmatch(path.name):
        return False
    return _read(path, Ledger(), ReadBudget(path.parent)) is not None


def _only_last_start(records: dict[str, RankRecord], ledger: Ledger) -> dict[str, RankRecord]:
    """A launcher that restarts all ranks after a failure may leave records of the earlier start."""
    last = max((record.start for record in records.values()), default=0)
    kept = {name: record for name, record in records.items() if record.start == last}
    ledger.note(
        "earlier-start",
        "a rank record is of an earlier start of the job; it is left out",
        count=len(records) - len(kept),
        severity=Severity.INFO,
        example=next((name for name in records if name not in kept), ""),
    )
    return kept


def _refuse_two_jobs(folder: Path, records: list[RankRecord]) -> None:
    sizes: dict[int, int] = {record.world_size: record.rank for record in reversed(records)}
    jobs = {record.job: record.rank for record in reversed(records) if record.job}
    if len(sizes) > 1:
        (one, its), (other, of) = list(sizes.items())[-2:]
        reason = f"rank {of} was one of {other}, rank {its} one of {one}"
    elif len(jobs) > 1:
        one_rank, other_rank = sorted(jobs.values())[:2]
        reason = f"ranks {one_rank} and {other_rank} have different job ids"
    else:
        return
    raise InputError(
        f"{folder} contains files of two jobs: {reason}",
        remedy="record each job into its own folder",
    )


def world_size(records: list[RankRecord]) -> int:
    return max((r.world_size for r in records), default=0)


def _read(path: Path, ledger: Ledger, budget: ReadBudget) -> RankRecord | None:
    try:
        return msgspec.json.decode(
            read_unpacked(path, max_bytes=MAX_RECORD_BYTES, budget=budget), type=RankRecord
        )
    except RunLimitError:
        raise
    except (ValueError, RecursionError, InputError) as error:
        ledger.note(
            "unreadable-record",
            "a rank record cannot be read",
            severity=Severity.ERROR,
            example=f"{path.name}: {str(error)[:300]}",
        )
        return None


def _note_gaps(records: list[RankRecord], ledger: Ledger) -> None:
    outside = [r.rank for r in records if r.rank >= world_size(records)]
    ledger.note(
        "rank-beyond-world",
        "a rank is not below the world size",
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
        remedy="check that rank's output; it may have been killed",
        example=f"rank {missing[0]}" if missing else "",
    )
