"""The Trace: what all ranks really did, on one clock, collectives matched; the input of build."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import numpy as np

from augury.core.columns import I4, I8, U1, Table, column
from augury.core.ledger import Ledger
from augury.core.plan.plan_status import PlanStatus, WindowMode
from augury.core.string_table import StringTable


@dataclass(frozen=True, kw_only=True, eq=False)
class Events(Table):
    """One row an event, sorted by (rank, stream, start_ns, -dur_ns): an enclosing event comes
    before what it encloses. Times are on the run's common clock."""

    kind: U1 = column("<u1")
    """An OpKind: what the event does; OTHER for an operation outside forward, backward, update."""
    rank: I4 = column("<i4")
    stream: I4 = column("<i4")
    """Row of Streams."""
    name: I4 = column("<i4")
    start_ns: I8 = column("<i8")
    dur_ns: I8 = column("<i8")
    arrival_ns: I8 = column("<i8")
    """When the rank asked for it (the launch of a kernel or collective); else its start."""
    step: I4 = column("<i4")
    phase: U1 = column("<u1")
    layer: I4 = column("<i4")
    size_bytes: I8 = column("<i8")
    group: I4 = column("<i4")
    """Index into Trace.groups; NONE for what is no communication."""
    sequence: I4 = column("<i4")
    """Equal on all members of one collective: (group, sequence) names it. NONE: unmatched."""
    cause: I4 = column("<i4")
    """Row of the event that launched it, on another stream."""
    parent: I4 = column("<i4")
    """Row of the innermost event around it on its stream; NONE at top level."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Streams(Table):
    """What runs events one after the other: a thread, a device's stream, a communicator."""

    kind: U1 = column("<u1")
    """A StreamKind."""
    rank: I4 = column("<i4")
    name: I4 = column("<i4")


@dataclass(frozen=True, kw_only=True, eq=False)
class Steps(Table):
    """Every step of every rank that left a record, sorted by (rank, step)."""

    rank: I4 = column("<i4")
    step: I4 = column("<i4")
    start_ns: I8 = column("<i8")
    end_ns: I8 = column("<i8")
    state: U1 = column("<u1")
    """A StepState."""
    cpu_ns: I8 = column("<i8")
    """Of the main thread; NONE where nobody looked, as in the two below."""
    delay_ns: I8 = column("<i8")
    """How long the main thread was runnable and found no core."""
    helper_cpu_ns: I8 = column("<i8")
    """Of all other threads of the process."""


@dataclass(frozen=True, kw_only=True, eq=False)
class GradientEvents(Table):
    """Which parameter's gradient travels in which bucket; sorted by (rank, order)."""

    rank: I4 = column("<i4")
    order: I4 = column("<i4")
    """The how-manieth gradient of a backward pass it is."""
    name: I4 = column("<i4")
    size_bytes: I8 = column("<i8")
    bucket: I4 = column("<i4")
    group: I4 = column("<i4")


@dataclass(frozen=True, kw_only=True, eq=False)
class MemoryUse(Table):
    """Memory that is held for something, by its kind (a MemoryKind) and layer."""

    rank: I4 = column("<i4")
    kind: U1 = column("<u1")
    layer: I4 = column("<i4")
    size_bytes: I8 = column("<i8")


class Clock(msgspec.Struct, frozen=True, kw_only=True):
    """How a rank's own clock was led to the common one: common = own + offset + drift x since."""

    offset_ns: int = 0
    drift_ppm: float = 0.0
    since_ns: int = 0
    """The own time at which ``offset_ns`` holds."""
    residual_ns: int = 0
    """How far off that line may be: half the shortest way there and back (handshake, wire), or what
    nine of ten ends keep to (collectives)."""
    source: str = "own"
    """own (nothing to align), host (shares the clock of the first rank's host), handshake,
    collectives, wire."""


class CpuUse(msgspec.Struct, frozen=True, kw_only=True):
    """CPU time of a rank's process and of its whole machine, over the same part of the run."""

    wall_ns: int
    process_ns: int
    machine_ns: int


class RankFacts(msgspec.Struct, frozen=True, kw_only=True):
    rank: int
    host: str
    framework: str = ""
    cores: int = 0
    command: list[str] = []
    trouble: str | None = None
    clock: Clock = Clock()
    bucket_cap_bytes: int | None = None
    first_bucket_cap_bytes: int | None = None
    cpu_use: CpuUse | None = None
    speed: list[tuple[int, int]] = []
    """How fast the machine was: after which step, and how many ns the same copy of memory took."""
    plan: PlanStatus | None = None
    """What became of the plan that the job was given; None: it was given none."""
    tells_of_plan: bool = False
    """Whether the recorder looked: earlier ones did not."""
    window_modes: list[WindowMode] = []
    """How the windows that were recorded exchanged gradients, where a plan was given."""
    piece_groups: list[int] = []
    """Groups that carried the pieces of a plan."""
    refusals: list[str] = []
    """Why the runtime would follow no plan of pieces here, each as the end of a sentence."""


class Calibration(msgspec.Struct, frozen=True, kw_only=True):
    """Collectives that the recorder itself ran, to know the network."""

    collective: str
    group: int
    size_bytes: int
    concurrent: int
    beside_compute: bool
    durations_ns: list[int]
    """The shortest over the ranks of each repetition: what is left is not waiting."""
    compute_rate: float | None = None
    """How fast compute went on beside it; the slowest rank's."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Trace:
    """Immutable; ``evolve`` makes another."""

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
    calibration: list[Calibration] = field(default_factory=list)
    ledger: Ledger = field(default_factory=Ledger)

    def name(self, event: int) -> str:
        return self.strings[int(self.events.name[event])]

    def of_rank(self, rank: int) -> slice:
        """The rows of its events."""
        first, last = np.searchsorted(self.events.rank, [rank, rank + 1])
        return slice(int(first), int(last))

    def evolve(self, **changes: Any) -> Trace:
        return replace(self, **changes)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Trace) and all(
            getattr(self, name) == getattr(other, name) for name in self.__dataclass_fields__
        )

    __hash__ = object.__hash__
