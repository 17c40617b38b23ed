"""What a replay says: when everything ran, why, on what, and how much memory it held."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

from augury.core.columns import I4, I8, U1, Table, column
from augury.core.enums import MemoryKind
from augury.core.graph.graph import Graph
from augury.core.ledger import Ledger


class Reason(IntEnum):
    """Why an operation on the critical path ran when it did."""

    START = 0
    """Nothing held it up: the path begins here."""
    DATA = 1
    """It waited for the result of the operation before it on the path."""
    RESOURCE = 2
    """It was ready, but the operation before it on the path held its place."""
    GANG = 3
    """It waited for the last rank to arrive, the operation before it on the path."""
    SLOWED = 4
    """It ran, but slower than its work: it shared a link, or something interfered."""

    @property
    def label(self) -> str:
        return self.name.lower()


@dataclass(frozen=True, kw_only=True, eq=False)
class CriticalPath(Table):
    """Segments that tile the window without a gap, earliest first. An operation that was slowed
    takes two rows: its work, then the time that sharing added (``Reason.SLOWED``)."""

    op: I4 = column("<i4")
    start_ns: I8 = column("<i8")
    dur_ns: I8 = column("<i8")
    reason: U1 = column("<u1")


@dataclass(frozen=True, kw_only=True, eq=False)
class ResourceUtilization(Table):
    """One row a resource, over the replayed window. ``busy_ns``: at least one operation on it
    progresses; ``waiting_ns``: held, but only by gang members whose peers are not there yet;
    ``idle_ns``: neither."""

    busy_ns: I8 = column("<i8")
    waiting_ns: I8 = column("<i8")
    idle_ns: I8 = column("<i8")
    num_ops: I8 = column("<i8")


@dataclass(frozen=True, kw_only=True, eq=False)
class RankSteps(Table):
    """When each rank was in each step: from its first start to its last end."""

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
    rank: int
    size_bytes: int
    at_ns: int
    holders: tuple[Holder, ...]
    """Largest first."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Timeline:
    """One window of ``graph``: as recorded or, where its steps depend on the step before, as it
    runs once it is steady; then time zero is the end of the window before it, or its own first
    start, if that is earlier."""

    graph: Graph
    start_ns: I8
    end_ns: I8
    step_ns: int
    """The predicted step: the steady period, or the middle one of a recorded window."""
    rank_step_ns: tuple[int, ...]
    """The same, seen by each rank (0 for a rank without steps)."""
    rank_steps: RankSteps
    critical_path: CriticalPath
    utilization: ResourceUtilization
    peak_memory: tuple[PeakMemory, ...]
    num_simulated_ops: int
    """Fewer than the graph has where identical ranks were folded."""
    ledger: Ledger = field(default_factory=Ledger)

    @property
    def makespan_ns(self) -> int:
        return int(self.end_ns.max(initial=0))
