"""The Trace: measured events of all ranks on one clock, with matched collectives."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import numpy as np

from augury.core.columns import I4, I8, U1, Table, column
from augury.core.ledger import Ledger
from augury.core.plan.plan_status import PlanStatus, WindowMode
from augury.core.string_table import StringTable
from augury.core.trace.module_timing import ModuleTiming


@dataclass(frozen=True, kw_only=True, eq=False)
class Events(Table):
    """One row per event, sorted by (rank, stream, start_ns, -dur_ns): an enclosing event comes
    before the enclosed ones. Times are on the run's common clock."""

    kind: U1 = column("<u1")
    """An OpKind; OTHER for an operation outside of forward, backward and update."""
    rank: I4 = column("<i4")
    stream: I4 = column("<i4")
    """Row of Streams."""
    name: I4 = column("<i4")
    start_ns: I8 = column("<i8")
    dur_ns: I8 = column("<i8")
    arrival_ns: I8 = column("<i8")
    """Launch time of a kernel or collective; otherwise its start."""
    step: I4 = column("<i4")
    phase: U1 = column("<u1")
    layer: I4 = column("<i4")
    size_bytes: I8 = column("<i8")
    group: I4 = column("<i4")
    """Index into Trace.groups; NONE for events that do not communicate."""
    sequence: I4 = column("<i4")
    """Equal on all members of a collective, which (group, sequence) names; NONE if unmatched."""
    cause: I4 = column("<i4")
    """Row of the event that launched it, on another stream."""
    parent: I4 = column("<i4")
    """Row of the innermost enclosing event on its stream; NONE at top level."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Streams(Table):
    """Streams run events one after the other: threads, device streams, communicators."""

    kind: U1 = column("<u1")
    """A StreamKind."""
    rank: I4 = column("<i4")
    name: I4 = column("<i4")


@dataclass(frozen=True, kw_only=True, eq=False)
class Steps(Table):
    """Steps of all ranks that left a record, sorted by (rank, step)."""

    rank: I4 = column("<i4")
    step: I4 = column("<i4")
    start_ns: I8 = column("<i8")
    end_ns: I8 = column("<i8")
    state: U1 = column("<u1")
    """A StepState."""
    cpu_ns: I8 = column("<i8")
    """CPU time of the main thread; NONE if unknown, as in the two columns below."""
    delay_ns: I8 = column("<i8")
    """Time for which the main thread was runnable and had no core."""
    helper_cpu_ns: I8 = column("<i8")
    """CPU time of all other threads of the process."""


@dataclass(frozen=True, kw_only=True, eq=False)
class GradientEvents(Table):
    """Buckets of the gradients of all parameters; sorted by (rank, order)."""

    rank: I4 = column("<i4")
    order: I4 = column("<i4")
    """Index of the gradient within its backward pass."""
    name: I4 = column("<i4")
    size_bytes: I8 = column("<i8")
    bucket: I4 = column("<i4")
    group: I4 = column("<i4")


@dataclass(frozen=True, kw_only=True, eq=False)
class MemoryUse(Table):
    """Memory by kind (a MemoryKind) and layer."""

    rank: I4 = column("<i4")
    kind: U1 = column("<u1")
    layer: I4 = column("<i4")
    size_bytes: I8 = column("<i8")


@dataclass(frozen=True, kw_only=True, eq=False)
class Allocations(Table):
    """Allocations and frees on the device of each rank, as its allocator recorded them; sorted by
    (rank, at_ns)."""

    rank: I4 = column("<i4")
    at_ns: I8 = column("<i8")
    change_bytes: I8 = column("<i8")
    """Size of an allocation, negative for a free; 0 if it is not known."""
    allocated_bytes: I8 = column("<i8")
    """Bytes of the device that are allocated afterwards."""
    reserved_bytes: I8 = column("<i8")
    """Bytes that the allocator holds afterwards, whether allocated or not."""
    pair: I4 = column("<i4")
    """Row of the free of an allocation, or of the allocation of a free; NONE if it was not
    recorded."""
    stream: I4 = column("<i4")
    """Row of Streams: the thread; NONE if it recorded nothing else."""
    name: I4 = column("<i4")
    """Name of the operation during which it happened; NONE between operations."""
    phase: U1 = column("<u1")
    layer: I4 = column("<i4")


class Clock(msgspec.Struct, frozen=True, kw_only=True):
    """Map from a rank's clock to the common one: common = own + offset + drift x since."""

    offset_ns: int = 0
    drift_ppm: float = 0.0
    since_ns: int = 0
    """Time on the rank's clock at which ``offset_ns`` holds."""
    residual_ns: int = 0
    """Error of the map: half of the shortest round trip (handshake, wire), or the 90 % quantile of
    the differences between ends of collectives."""
    source: str = "own"
    """Source of the map: own (nothing to align), host (shares the clock of the first rank's host),
    handshake, collectives, wire."""


class CpuUse(msgspec.Struct, frozen=True, kw_only=True):
    """CPU time of a rank's process and of its whole machine, over the same part of the run."""

    wall_ns: int
    process_ns: int
    machine_ns: int


OPERATION_TABLE, HOROVOD_TIMELINE = "operation table", "Horovod timeline"
"""Frameworks of ranks whose events are coarse operations. The graph of such a run follows the order
and the communication of the operations."""


class RankFacts(msgspec.Struct, frozen=True, kw_only=True):
    rank: int
    host: str
    framework: str = ""
    cores: int = 0
    core_numbers: list[int] = []
    """The cores that the process may run on; empty if unknown."""
    cpu_limit: float | None = None
    """Limit of the process's control group, in cores; None without one."""
    num_threads: int = 0
    """Number of threads that share the work of one operation; 0 if unknown."""
    command: list[str] = []
    job_command: list[str] = []
    """The command that ``augury run`` started; empty if unknown."""
    trouble: str | None = None
    clock: Clock = Clock()
    bucket_cap_bytes: int | None = None
    first_bucket_cap_bytes: int | None = None
    gradient_as_bucket_view: bool | None = None
    """Whether gradients are views into DDP's buckets; None if that is unknown."""
    cpu_use: CpuUse | None = None
    device_memory_bytes: int | None = None
    """Memory of the rank's device."""
    speed: list[tuple[int, int]] = []
    """Probes of the machine's speed: the step, and the time of one memory copy in ns."""
    plan: PlanStatus | None = None
    """Status of the job's plan; None if it had no plan."""
    tells_of_plan: bool = False
    """Whether the recorder looked for it: earlier versions did not."""
    window_modes: list[WindowMode] = []
    """Exchange of gradients in the recorded windows, if the job had a plan."""
    piece_groups: list[int] = []
    """Process groups that carried the pieces of a plan."""
    refusals: list[str] = []
    """Reasons why the runtime cannot follow a plan of pieces, each as the end of a sentence."""
    module_timings: list[ModuleTiming] = []
    """Times of the rank's modules, measured by calibration."""
    modules: dict[str, str] = {}
    """Class name of each trained module, by its path."""


class Calibration(msgspec.Struct, frozen=True, kw_only=True):
    """Collectives that the recorder ran to measure the network."""

    collective: str
    group: int
    size_bytes: int
    concurrent: int
    beside_compute: bool
    durations_ns: list[int]
    """Shortest duration over the ranks, for each repetition: the one without waiting."""
    compute_rate: float | None = None
    """Speed of compute on the slowest rank during the collective."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Trace:
    """Measured events of a run. Immutable; ``evolve`` makes a changed copy."""

    events: Events
    streams: Streams
    steps: Steps
    strings: StringTable
    ranks: list[RankFacts]
    world_size: int
    groups: list[list[int]] = field(default_factory=list)
    """The ranks of each process group."""
    gradients: GradientEvents = field(default_factory=GradientEvents.empty)
    memory: MemoryUse = field(default_factory=MemoryUse.empty)
    allocations: Allocations = field(default_factory=Allocations.empty)
    calibration: list[Calibration] = field(default_factory=list)
    ledger: Ledger = field(default_factory=Ledger)

    def name(self, event: int) -> str:
        return self.strings[int(self.events.name[event])]

    def of_rank(self, rank: int) -> slice:
        """Returns the rows of its events."""
        first, last = np.searchsorted(self.events.rank, [rank, rank + 1])
        return slice(int(first), int(last))

    def evolve(self, **changes: Any) -> Trace:
        return replace(self, **changes)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Trace) and all(
            getattr(self, name) == getattr(other, name) for name in self.__dataclass_fields__
        )

    __hash__ = object.__hash__
