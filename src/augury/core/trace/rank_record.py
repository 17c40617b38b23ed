"""The schema of a rank record, ``rank-00000.json``: the recorder writes it, ingest reads it.

Limits in the types hold for files that are read; a record that is built in a training process is
not checked again.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from augury.core.plan.piece_log import PieceLog
from augury.core.plan.plan_status import MAX_REASON_CHARS, PlanStatus, TrainingMode
from augury.core.trace.module_timing import MAX_TIMINGS, ModuleTiming

SCHEMA_VERSION = 2
MAX_RANKS = 1 << 20
MAX_STEPS = 10_000_000
MAX_REFUSALS = 100
MAX_CORE_NUMBERS = 1 << 14

_Time = Annotated[int, msgspec.Meta(ge=0, le=3_000_000_000_000_000_000)]
_Delay = Annotated[int, msgspec.Meta(ge=-1, le=1 << 60)]
_Size = Annotated[int, msgspec.Meta(ge=0, le=1 << 60)]
_Rank = Annotated[int, msgspec.Meta(ge=0, lt=MAX_RANKS)]
_Core = Annotated[int, msgspec.Meta(ge=0, lt=1 << 20)]
_Step = Annotated[int, msgspec.Meta(ge=0, le=MAX_STEPS)]
_Reason = Annotated[str, msgspec.Meta(max_length=MAX_REASON_CHARS)]


class RecordedWindow(msgspec.Struct, frozen=True, kw_only=True):
    """One recording window: steps ``first + 1`` to ``last``."""

    first: _Step
    last: _Step
    mode: str = "light"
    """``light`` (timed) or ``detail``."""
    trace: str | None = None
    """File name of the window's trace; None if there is none."""
    dropped: bool = False
    """Whether the trace was removed to make room for later windows."""
    training_mode: TrainingMode | None = None
    """How gradients were exchanged; None if the job had no plan."""

    @property
    def is_detailed(self) -> bool:
        return self.mode == "detail"


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """One process group."""

    name: str
    ranks: list[_Rank]
    backend: str = ""


class Parameter(msgspec.Struct, frozen=True, kw_only=True):
    """One parameter of a DistributedDataParallel module."""

    name: str
    size_bytes: _Size
    dtype: str = ""


class RecordedBucket(msgspec.Struct, frozen=True, kw_only=True):
    """One gradient bucket: its size and the indices of its parameters."""

    size_bytes: _Size
    parameters: list[int]


class RecordedDdp(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters and buckets of one DistributedDataParallel module."""

    group: str = "0"
    parameters: list[Parameter] = []
    """In the order in which DDP numbers them."""
    buckets: list[RecordedBucket] = []
    """In the order in which DDP sends them."""
    ready_order: list[int] = []
    bucket_cap_bytes: int | None = None
    first_bucket_cap_bytes: int | None = None
    gradient_as_bucket_view: bool | None = None
    find_unused_parameters: bool | None = None


class RecordedCall(msgspec.Struct, frozen=True, array_like=True):
    """One communication call that the program made from Python."""

    start_ns: _Time
    end_ns: _Time
    kind: str
    group: str
    sequence: int
    size_bytes: int = 0
    peer: int = -1
    waited_from_ns: _Time = 0
    """When the program began to wait for the call; 0 if no wait was seen."""
    waited_until_ns: _Time = 0


class StepCpu(msgspec.Struct, frozen=True, array_like=True):
    """Cumulative CPU times of the training thread and its process at the end of a step."""

    step: int
    main_cpu_ns: int
    main_delay_ns: int
    """Time for which the training thread was runnable without a core; -1 if unknown."""
    process_cpu_ns: int


class MachineReading(msgspec.Struct, frozen=True, array_like=True):
    """Cumulative CPU times of the whole machine and of this process."""

    at_ns: _Time
    busy_ns: _Size
    """CPU time of all processes of the machine."""
    process_cpu_ns: _Size


class RecordedMemory(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes of one kind that one layer holds."""

    kind: str
    layer: str = ""
    size_bytes: _Size


class Handshake(msgspec.Struct, frozen=True, kw_only=True):
    """Clock stamps of exchanges with a peer: ``t0, t3`` on this rank's clock, ``t1, t2`` on the
    peer's."""

    peer: _Rank = 0
    moment: str = ""
    exchanges: list[tuple[_Time, _Time, _Time, _Time]] = []


class CalibrationRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Measured durations of one communication size in one situation."""

    collective: str = "all_reduce"
    group: str = "0"
    size_bytes: _Size
    concurrent: int = 1
    beside_compute: bool = False
    durations_ns: list[_Time] = []
    compute_rate: float | None = None
    """Rate of compute during the communication, relative to compute alone."""


class RankHeader(msgspec.Struct, frozen=True, kw_only=True):
    """Identity and steps of one rank: the part of a rank record that a summary of the run needs."""

    schema_version: int = 1
    rank: _Rank
    world_size: Annotated[int, msgspec.Meta(ge=1, le=MAX_RANKS)]
    host: str = ""
    job: str = ""
    """Identifier shared by all ranks of one start of a job; empty without a rendezvous."""
    trouble: str | None = None
    """Problems of the recording, in words."""
    windows: list[RecordedWindow] = []
    step_end_ns: Annotated[list[_Time], msgspec.Meta(max_length=MAX_STEPS)] = []
    resumed: list[tuple[_Step, _Time]] = []
    """Step, and the time at which the recorder let the job continue after that step."""
    plan: PlanStatus | msgspec.UnsetType | None = msgspec.UNSET
    """None: the job had no plan; unset: the recorder did not record it."""
    module_timings: Annotated[list[ModuleTiming], msgspec.Meta(max_length=MAX_TIMINGS)] = []
    """Times of single modules, measured after the job; only at rank 0."""


class RankRecord(RankHeader, frozen=True, kw_only=True):
    """Everything that one rank records besides its traces."""

    start: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Number of times the launcher had restarted the ranks."""
    framework: str = ""
    pid: int = 0
    python: str = ""
    cores: int | None = 0
    """Number of cores that the process may run on."""
    core_numbers: Annotated[list[_Core], msgspec.Meta(max_length=MAX_CORE_NUMBERS)] = []
    """Numbers of these cores."""
    cpu_limit: Annotated[float, msgspec.Meta(gt=0)] | None = None
    """Limit of the process's control group, in cores; None without one."""
    num_threads: Annotated[int, msgspec.Meta(ge=0, le=1 << 20)] = 0
    """Number of threads that share the work of one operation; 0 if unknown."""
    command: list[str] = []
    job_command: list[str] = []
    """The command that ``augury run`` started; empty where another launcher started the ranks."""
    step_cpu: list[StepCpu] = []
    step_delay_ns: Annotated[list[_Delay], msgspec.Meta(max_length=MAX_STEPS)] = []
    """Cumulative time that the training thread waited for a core, at the end of each step."""
    speed: Annotated[list[tuple[_Step, _Size]], msgspec.Meta(max_length=MAX_STEPS)] = []
    """Step, and the duration of a fixed memory copy after that step."""
    machine: Annotated[list[MachineReading], msgspec.Meta(max_length=2)] = []
    """Readings at the opening of the first window and at the end."""
    groups: list[Group] = []
    ddp: list[RecordedDdp] = []
    calls: list[RecordedCall] = []
    modules: dict[str, str] = {}
    """Class name of each trained module, by its path."""
    memory: list[RecordedMemory] = []
    handshake: list[Handshake] = []
    calibration: list[CalibrationRecord] = []
    pieces: PieceLog | None = None
    """Times of the pieces of a plan, which no profiler sees."""
    refusals: Annotated[list[_Reason], msgspec.Meta(max_length=MAX_REFUSALS)] = []
    """Reasons why the runtime would follow no plan of pieces."""
    # Fields of schema version 1, which had a single window:
    window: tuple[_Step, _Step] | msgspec.UnsetType | None = msgspec.UNSET
    trace: str | msgspec.UnsetType | None = msgspec.UNSET

    @property
    def all_windows(self) -> list[RecordedWindow]:
        """Windows of the record, whichever schema version it has."""
        if not self.window or self.windows:
            return self.windows
        first, last = self.window
        trace = self.trace or None
        return [RecordedWindow(first=first, last=last, trace=trace)] if last > first else []
