"""The Timeline: times of all operations, critical path, utilization and peak memory of a replay."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property

import numpy as np

from augury.core.columns import I4, I8, U1, Table, column
from augury.core.enums import MemoryKind
from augury.core.graph.graph import Graph
from augury.core.ledger import Ledger


class Reason(IntEnum):
    """Reason for the start time of an operation on the critical path."""

    START = 0
    """It did not wait: the path begins here."""
    DATA = 1
    """It waited for the result of the operation before it on the path."""
    RESOURCE = 2
    """It was ready, but the operation before it on the path occupied its resource."""
    GANG = 3
    """It waited for the last rank to arrive, the operation before it on the path."""
    SLOWED = 4
    """Time added to its work by a shared resource or by interference."""

    @property
    def label(self) -> str:
        return self.name.lower()


@dataclass(frozen=True, kw_only=True, eq=False)
class CriticalPath(Table):
    """Segments that cover the window without gaps, earliest first. An operation that was slowed
    has two rows: its work, then the added time (``Reason.SLOWED``)."""

    op: I4 = column("<i4")
    start_ns: I8 = column("<i8")
    dur_ns: I8 = column("<i8")
    reason: U1 = column("<u1")


@dataclass(frozen=True, kw_only=True, eq=False)
class ResourceUtilization(Table):
    """Utilization of each resource over the replayed window. ``busy_ns``: at least one operation on
    it progresses; ``waiting_ns``: it is occupied only by gang members that wait for their peers;
    ``idle_ns``: neither."""

    busy_ns: I8 = column("<i8")
    waiting_ns: I8 = column("<i8")
    idle_ns: I8 = column("<i8")
    num_ops: I8 = column("<i8")


@dataclass(frozen=True, kw_only=True, eq=False)
class RankSteps(Table):
    """Time of each step on each rank, from its first start to its last end."""

    rank: I4 = column("<i4")
    step: I4 = column("<i4")
    start_ns: I8 = column("<i8")
    end_ns: I8 = column("<i8")

    def of_rank(self, rank: int) -> RankSteps:
        return RankSteps(**{n: values[self.rank == rank] for n, values in self.columns()})


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """Memory of one kind that one layer holds at the peak."""

    kind: MemoryKind
    layer: str
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PeakMemory:
    """Peak memory of one rank, and the memory held at that time by kind and layer."""

    rank: int
    size_bytes: int
    at_ns: int
    holders: tuple[Holder, ...]
    """Largest first."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Timeline:
    """Replay of one window of ``graph``: as recorded or, if its steps depend on the step before, in
    the steady state. In the steady state, time zero is the end of the window before, or the first
    start in this one if that is earlier."""

    graph: Graph
    start_ns: I8
    end_ns: I8
    step_ns: int
    """Predicted step: the period of the steady state, or the median step of a recorded window."""
    rank_step_ns: tuple[int, ...]
    """Predicted step of each rank (0 for a rank without steps)."""
    rank_steps: RankSteps
    critical_path: CriticalPath
    utilization: ResourceUtilization
    peak_memory: tuple[PeakMemory, ...]
    num_simulated_ops: int
    """Number of simulated operations: of all windows, after identical ranks were folded."""
    ledger: Ledger = field(default_factory=Ledger)

    @property
    def makespan_ns(self) -> int:
        return int(self.end_ns.max(initial=0))

    @cached_property
    def progress_start_ns(self) -> I8:
        """Times at which operations begin to progress. Members of a gang hold their places from
        their own start, and progress from the start of the last one."""
        members, begin = self.graph.gang_members, self.start_ns.copy()
        if len(members.dst):
            sizes = np.diff(members.first)
            last = np.maximum.reduceat(self.start_ns[members.dst], members.first[:-1][sizes > 0])
            begin[members.dst] = np.repeat(last, sizes[sizes > 0])
        return begin
