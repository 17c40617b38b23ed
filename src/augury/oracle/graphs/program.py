"""What a device does in a step, where all devices do the same: written down once, then laid out as
a Graph of one rank that stands for all, or of all of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise

from augury.core.enums import OpKind, ResourceKind
from augury.core.errors import LimitError
from augury.core.graph.builder import GraphBuilder
from augury.core.graph.graph import NONE, Graph
from augury.core.graph.graph_spec import MAX_WORK_NS
from augury.core.units import NS_PER_S
from augury.oracle.graphs.input_reading import Reading
from augury.oracle.graphs.memory_buffers import Buffer
from augury.oracle.strategy import StrategyCase

MAX_OPS = 1 << 20
DEVICE = "device"
TOO_LARGE = "take fewer devices or micro-batches, or --fidelity closed"


class Fellows(Enum):
    """Who takes part in a communication: all end together."""

    NOBODY = 0
    ALL = 1
    GROUP = 2
    ACROSS = 3
    """Those at the same place in all groups."""

    def gang_of(self, rank: int, group: int) -> int:
        """A number that fellows have in common."""
        return {Fellows.GROUP: rank // group, Fellows.ACROSS: rank % group}.get(self, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramOperation:
    name: str
    kind: OpKind
    work_ns: int
    on: str
    """A resource of the device; empty: none."""
    after: tuple[int, ...]
    layer: str | None = None
    size_bytes: int = 0
    priority: int = 0
    fellows: Fellows = Fellows.NOBODY


class Program:
    """Times are rounded so that those of one resource add up to what they are together."""

    def __init__(self) -> None:
        self.operations: list[ProgramOperation] = []
        self.buffers: list[Buffer] = []
        self.sent_before: list[tuple[int, int]] = []
        """Pairs of communications of which the second waits for the first."""
        self._spent_s: dict[str, float] = {}

    def op(
        self,
        name: str,
        kind: OpKind,
        work_s: float,
        *,
        on: str = "",
        after: Iterable[int] = (),
        layer: str | None = None,
        size_bytes: float = 0,
        priority: int = 0,
        fellows: Fellows = Fellows.NOBODY,
    ) -> int:
        before_s = self._spent_s.get(on, 0.0)
        self._spent_s[on] = before_s + work_s
        work_ns = whole_ns(before_s + work_s) - whole_ns(before_s)
        self.operations.append(
            ProgramOperation(
                name=name,
                kind=kind,
                work_ns=work_ns,
                on=on if work_ns else "",  # on a resource it would take a round of its own
                after=tuple(sorted(set(after))),
                layer=layer,
                size_bytes=round(size_bytes),
                priority=priority,
                fellows=fellows if work_ns else Fellows.NOBODY,
            )
        )
        return len(self.operations) - 1

    def keep_order(self, start_ns: Sequence[int]) -> None:
        """Communications go in the order in which they did then: where one rank is late, others
        must not take another first that it takes later."""
        by_link: dict[str, list[int]] = {}
        for place in sorted(range(len(self.operations)), key=lambda place: start_ns[place]):
            if self.operations[place].fellows is not Fellows.NOBODY:
                by_link.setdefault(self.operations[place].on, []).append(place)
        self.sent_before = [pair for sent in by_link.values() for pair in pairwise(sent)]

    def graph(
        self, case: StrategyCase, meta: dict[str, str], *, num_ranks: int, group: int
    ) -> Graph:
        """``num_ranks`` is one, or all of them."""
        check_size(len(self.operations) * num_ranks)
        builder = GraphBuilder(meta=meta)
        gangs: dict[tuple[int, int], int] = {}
        reading = Reading(builder, case)
        for number in range(num_ranks):
            rank = builder.rank(host=f"node {number // case.cluster.devices_per_host}")
            places = {"": NONE}
            ids: list[int] = []
            for place, one in enumerate(self.operations):
                if one.on not in places:
                    places[one.on] = builder.resource(one.on, rank=rank, kind=_kind(one.on))
                gang = NONE
                if num_ranks > 1 and one.fellows is not Fellows.NOBODY:
                    key = place, one.fellows.gang_of(number, group)
                    if key not in gangs:
                        gangs[key] = builder.gang()
                    gang = gangs[key]
                ids.append(
                    builder.op(
                        one.name,
                        kind=one.kind,
                        rank=rank,
                        resource=places[one.on],
                        work_ns=one.work_ns,
                        size_bytes=one.size_bytes,
                        priority=one.priority,
                        gang=gang,
                        layer=one.layer,
                        after=[ids[before] for before in one.after],
                    )
                )
            for before, after in self.sent_before:
                builder.edge(ids[before], ids[after])
            named = [*ids, NONE]
            for buffer in self.buffers:
                add_buffer(builder, rank, buffer, named)
            reading.of_rank(rank, first=ids[0], last=ids[-1])
        reading.end_step()
        return builder.build()


def add_buffer(builder: GraphBuilder, rank: int, buffer: Buffer, ids: Sequence[int]) -> None:
    """``ids`` are what its operations are called in the graph; the last, what nothing is."""
    size_bytes = round(buffer.size_bytes)
    if size_bytes:
        builder.buffer(
            size_bytes,
            rank=rank,
            kind=buffer.kind,
            taken_by=ids[buffer.taken_by],
            given_by=ids[buffer.given_by],
            layer=buffer.layer,
        )


def whole_ns(seconds: float) -> int:
    work_ns = seconds * NS_PER_S
    if not 0 <= work_ns < MAX_WORK_NS:
        raise LimitError(
            f"{seconds:.3g} s of work on one device is too long for a replay",
            remedy="take a smaller batch, or --fidelity closed",
        )
    return round(work_ns)


def check_size(num_ops: int) -> None:
    if num_ops > MAX_OPS:
        raise LimitError(
            f"a graph of {num_ops:,} operations, more than {MAX_OPS:,}", remedy=TOO_LARGE
        )


def _kind(resource: str) -> ResourceKind:
    return ResourceKind.COMPUTE if resource == DEVICE else ResourceKind.COMMUNICATION
