"""The Graph: operations, dependencies, resources and memory of all ranks, as flat arrays."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from augury.core.columns import I4, I8, U1, Table, column
from augury.core.enums import OpKind, Role
from augury.core.ledger import Ledger
from augury.core.string_table import StringTable

NONE = -1
"""Value of an index column that refers to nothing."""

UNRESOLVED_WAIT = "unresolved_wait"
"""Key of ``Graph.meta``: share of the steps that was waiting for ranks without a record."""

COMMUNICATION_CPU = "communication_cpu_ns"
"""Key of ``Graph.meta``: ``Graph.communication_cpu_ns``, separated by spaces."""

RATE_ONE = 1 << 20
"""Full speed. Rates are fixed-point, so that C++ and Python agree to the nanosecond."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Ops(Table):
    """One row per operation; its row number is its id."""

    kind: U1 = column("<u1")
    rank: I4 = column("<i4")
    resource: I4 = column("<i4")
    work_ns: I8 = column("<i8")
    size_bytes: I8 = column("<i8")
    priority: I4 = column("<i4")
    gang: I4 = column("<i4")
    layer: I4 = column("<i4")
    step: I4 = column("<i4")
    name: I4 = column("<i4")


@dataclass(frozen=True, kw_only=True, eq=False)
class Edges(Table):
    """Successors in CSR form: those of ``op`` are ``dst[first[op]:first[op + 1]]``, ascending."""

    first: I4 = column("<i4")
    dst: I4 = column("<i4")

    def sources(self) -> I4:
        """Returns the source of every edge, in the order of ``dst``."""
        counts = np.diff(self.first)
        return np.repeat(np.arange(len(counts), dtype=np.int32), counts)

    def of(self, op: int) -> I4:
        return self.dst[self.first[op] : self.first[op + 1]]

    @classmethod
    def from_pairs(cls, src: I4, dst: I4, *, num_ops: int) -> Edges:
        # Sorting one column of pairs is much faster than sorting indices by two columns.
        pairs = (src.astype(np.int64) << 32) | (dst.astype(np.int64) & 0xFFFF_FFFF)
        pairs.sort()
        counts = np.bincount(src, minlength=num_ops)
        return cls(
            first=np.concatenate([[0], np.cumsum(counts)]),
            dst=(pairs & 0xFFFF_FFFF).astype(np.uint32).view(np.int32),
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Carries(Table):
    """Edges into the next window: ``dst`` of the next one waits for ``src`` of this one."""

    src: I4 = column("<i4")
    dst: I4 = column("<i4")


@dataclass(frozen=True, kw_only=True, eq=False)
class Resources(Table):
    """Resources that operations occupy. ``capacity`` 0 means exclusive. A shared resource has the
    speed of ``capacity`` / RATE_ONE operations: each of n gets min(RATE_ONE, capacity / n)."""

    kind: U1 = column("<u1")
    rank: I4 = column("<i4")
    width: I4 = column("<i4")
    capacity: I8 = column("<i8")
    discipline: U1 = column("<u1")
    name: I4 = column("<i4")


@dataclass(frozen=True, kw_only=True, eq=False)
class Interference(Table):
    """``victim`` runs at ``rate`` / RATE_ONE of its speed while something progresses on
    ``aggressor``; several rules multiply, in row order."""

    victim: I4 = column("<i4")
    aggressor: I4 = column("<i4")
    rate: I8 = column("<i8")


@dataclass(frozen=True, kw_only=True, eq=False)
class Buffers(Table):
    """Memory buffers. A buffer is allocated when ``taken_by`` starts (NONE: before the window) and
    freed when ``given_by`` ends (NONE: never), in the same window or, if ``later`` is 1, in the
    next."""

    rank: I4 = column("<i4")
    size_bytes: I8 = column("<i8")
    kind: U1 = column("<u1")
    taken_by: I4 = column("<i4")
    given_by: I4 = column("<i4")
    later: U1 = column("<u1")
    layer: I4 = column("<i4")


@dataclass(frozen=True, kw_only=True, eq=False)
class Gradients(Table):
    """Gradients and the communication that carries each of them: the input of a change of buckets.
    Rows of one rank and step are adjacent, in the order in which backward computes them."""

    rank: I4 = column("<i4")
    step: I4 = column("<i4")
    name: I4 = column("<i4")
    size_bytes: I8 = column("<i8")
    made_by: I4 = column("<i4")
    """Operation that computes it."""
    carried_by: I4 = column("<i4")
    """Communication that it is part of."""
    used_by: I4 = column("<i4")
    """First operation that needs the communicated gradient."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Ranks(Table):
    """One row per process; its row number is its rank."""

    role: U1 = column("<u1")
    host: I4 = column("<i4")


@dataclass(frozen=True, kw_only=True, eq=False)
class MeasuredSteps(Table):
    """Measured durations of steps, and the part that recorded operations explain."""

    rank: I4 = column("<i4")
    step: I4 = column("<i4")
    dur_ns: I8 = column("<i8")
    explained_ns: I8 = column("<i8")


@dataclass(frozen=True, kw_only=True, eq=False)
class Graph:
    """The intermediate representation of a run. Immutable; a pass makes a new one (``evolve``)."""

    ops: Ops
    edges: Edges
    resources: Resources
    ranks: Ranks
    strings: StringTable
    carries: Carries = field(default_factory=Carries.empty)
    interference: Interference = field(default_factory=Interference.empty)
    buffers: Buffers = field(default_factory=Buffers.empty)
    gradients: Gradients = field(default_factory=Gradients.empty)
    measured: MeasuredSteps = field(default_factory=MeasuredSteps.empty)
    meta: dict[str, str] = field(default_factory=dict)
    ledger: Ledger = field(default_factory=Ledger)

    @property
    def num_ops(self) -> int:
        return len(self.ops)

    @property
    def num_ranks(self) -> int:
        """Number of workers; parameter servers do not count."""
        return int(np.count_nonzero(self.ranks.role == Role.WORKER))

    @cached_property
    def num_gangs(self) -> int:
        return int(self.ops.gang.max(initial=NONE)) + 1

    @cached_property
    def num_steps(self) -> int:
        """Number of distinct steps in the window."""
        steps = self.ops.step[self.ops.step >= 0]
        first, last = int(steps.min(initial=0)), int(steps.max(initial=0))
        if last - first <= 2 * len(steps):
            return int(np.count_nonzero(np.bincount(steps - first)))
        # With counts, numpy does not import its masked arrays.
        distinct, _ = np.unique(steps, return_counts=True)
        return len(distinct)

    @cached_property
    def predecessors(self) -> Edges:
        """Reversed edges: ``of(op)`` are the operations that ``op`` waits for."""
        return Edges.from_pairs(self.edges.dst, self.edges.sources(), num_ops=self.num_ops)

    @cached_property
    def gang_members(self) -> Edges:
        """Members of gangs: ``of(gang)`` are its operations, by id."""
        members = np.flatnonzero(self.ops.gang >= 0).astype(np.int32)
        return Edges.from_pairs(self.ops.gang[members], members, num_ops=self.num_gangs)

    @property
    def unresolved_wait(self) -> float:
        """Share of the steps that was waiting for ranks without a record: no change moves it."""
        try:
            share = float(self.meta.get(UNRESOLVED_WAIT, 0))
        except ValueError:
            return 0.0
        return share if 0 <= share <= 1 else 0.0

    @property
    def communication_cpu_ns(self) -> tuple[int, ...]:
        """Time that communication can have taken from the main thread of each rank in these steps,
        by the processor time of the rank's other threads; empty if it was not recorded."""
        try:
            found = tuple(int(word) for word in self.meta.get(COMMUNICATION_CPU, "").split())
        except ValueError:
            return ()
        return found if len(found) == len(self.ranks) and min(found) >= 0 else ()

    @property
    def is_exclusive(self) -> bool:
        """Whether there is no sharing and no interference: operations take exactly ``work_ns``."""
        return not len(self.interference) and not self.resources.capacity.any()

    def op_name(self, op: int) -> str:
        return self.strings[int(self.ops.name[op])]

    def op_label(self, op: int) -> str:
        """Returns the name of an operation for messages."""
        kind = OpKind(int(self.ops.kind[op])).label
        return f"{self.op_name(op)!r} ({kind}, rank {self.ops.rank[op]}, op {op})"

    def resource_name(self, resource: int) -> str:
        return self.strings[int(self.resources.name[resource])] if resource >= 0 else ""

    def evolve(self, **changes: Any) -> Graph:
        return replace(self, **changes)

    def with_work_ns(self, work_ns: I8) -> Graph:
        """Returns the same graph with other durations, one per operation."""
        changed = self.evolve(ops=Ops(**dict(self.ops.columns()) | {"work_ns": work_ns}))
        # Indexes that do not depend on durations are not computed again.
        for name in ("num_gangs", "num_steps", "predecessors", "gang_members"):
            if name in self.__dict__:
                changed.__dict__[name] = self.__dict__[name]
        return changed

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Graph) and all(
            getattr(self, name) == getattr(other, name) for name in self.__dataclass_fields__
        )

    __hash__ = object.__hash__
