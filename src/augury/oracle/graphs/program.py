"""Program of one device in a step, and its Graph with one rank for all devices or one for each."""

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
from augury.oracle.graphs.input_reading import InputReading
from augury.oracle.graphs.memory_buffers import Buffer
from augury.oracle.strategy import StrategyCase

MAX_OPS = 1 << 20
DEVICE = "device"
TOO_LARGE = "use fewer devices or micro-batches, or --fidelity closed"


class Participants(Enum):
    """Ranks that take part in a communication and end it together."""

    NONE = 0
    ALL = 1
    GROUP = 2
    ACROSS = 3
    """Ranks at the same position in all groups."""

    def gang_of(self, rank: int, group: int) -> int:
        """Number that the participants of one communication have in common."""
        by_kind = {Participants.GROUP: rank // group, Participants.ACROSS: rank % group}
        return by_kind.get(self, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramOperation:
    name: str
    kind: OpKind
    work_ns: int
    on: str
    """Name of the device's resource; empty: none."""
    after: tuple[int, ...]
    layer: str | None = None
    size_bytes: int = 0
    priority: int = 0
    participants: Participants = Participants.NONE


class Program:
    """Operations of one device. Times are rounded so that those of one resource add up to their
    total."""

    def __init__(self) -> None:
        self.operations: list[ProgramOperation] = []
        self.buffers: list[Buffer] = []
        self.sent_before: list[tuple[int, int]] = []
        """Pairs of communications; the second waits for the first."""
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
        participants: Participants = Participants.NONE,
    ) -> int:
        before_s = self._spent_s.get(on, 0.0)
        self._spent_s[on] = before_s + work_s
        work_ns = rounded_ns(before_s + work_s) - rounded_ns(before_s)
        self.operations.append(
            ProgramOperation(
                name=name,
                kind=kind,
                work_ns=work_ns,
                on=on if work_ns else "",  # it would take a round of its own
                after=tuple(sorted(set(after))),
                layer=layer,
                size_bytes=round(size_bytes),
                priority=priority,
                participants=participants if work_ns else Participants.NONE,
            )
        )
        return len(self.operations) - 1

    def keep_order(self, start_ns: Sequence[int]) -> None:
        """Fixes the order of communications to that of the given start times: if one rank is late,
        the others must not start another communication before the one that it starts next."""
        by_link: dict[str, list[int]] = {}
        for index in sorted(range(len(self.operations)), key=lambda index: start_ns[index]):
            if self.operations[index].participants is not Participants.NONE:
                by_link.setdefault(self.operations[index].on, []).append(index)
        self.sent_before = [pair for sent in by_link.values() for pair in pairwise(sent)]

    def graph(
        self, case: StrategyCase, meta: dict[str, str], *, num_ranks: int, group: int
    ) -> Graph:
        """Returns the graph of one rank that stands for all, or of all ranks."""
        check_size(len(self.operations) * num_ranks)
        builder = GraphBuilder(meta=meta)
        gangs: dict[tuple[int, int], int] = {}
        reading = InputReading(builder, case)
        for number in range(num_ranks):
            rank = builder.rank(host=f"node {number // case.cluster.devices_per_host}")
            resources = {"": NONE}
            ids: list[int] = []
            for index, one in enumerate(self.operations):
                if one.on not in resources:
                    resources[one.on] = builder.resource(one.on, rank=rank, kind=_kind(one.on))
                gang = NONE
                if num_ranks > 1 and one.participants is not Participants.NONE:
                    key = index, one.participants.gang_of(number, group)
                    if key not in gangs:
                        gangs[key] = builder.gang()
                    gang = gangs[key]
                ids.append(
                    builder.op(
                        one.name,
                        kind=one.kind,
                        rank=rank,
                        resource=resources[one.on],
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
            reading.add_rank(rank, first=ids[0], last=ids[-1])
        reading.end_step()
        return builder.build()


def add_buffer(builder: GraphBuilder, rank: int, buffer: Buffer, ids: Sequence[int]) -> None:
    """Adds a buffer; ``ids`` maps operations of the program to those of the graph, and -1 to
    none."""
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


def rounded_ns(seconds: float) -> int:
    work_ns = seconds * NS_PER_S
    if not 0 <= work_ns < MAX_WORK_NS:
        raise LimitError(
            f"{seconds:.3g} s of work on one device is too long for a replay",
            remedy="use a smaller batch, or --fidelity closed",
        )
    return round(work_ns)


def check_size(num_ops: int) -> None:
    if num_ops > MAX_OPS:
        raise LimitError(
            f"a graph of {num_ops:,} operations, more than {MAX_OPS:,}", remedy=TOO_LARGE
        )


def _kind(resource: str) -> ResourceKind:
    return ResourceKind.COMPUTE if resource == DEVICE else ResourceKind.COMMUNICATION
