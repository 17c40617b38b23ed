"""Pieces of an order as operations on the communication streams of the ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from augury.build.problem.step_parts import StepParts
from augury.core.enums import Discipline, OpKind, ResourceKind
from augury.core.graph.graph import NONE, RATE_ONE, Graph
from augury.core.plan.plan import FIRST_OPS, Order, Piece
from augury.core.plan.problem import Problem
from augury.costs.collective_costs import Costs
from augury.costs.p2p_exchange import PeerCosts
from augury.costs.piece_costs import compute_rate_during_communication
from augury.costs.runtime_overhead import NO_OVERHEAD, RuntimeOverhead
from augury.costs.transfer_times import TransferCost
from augury.passes.graph_edit import GraphEdit

WAITING_RATE = 0.05
"""Rate of a thread that waits for a core while its rank computes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderedPieces:
    """An order of pieces with the cost of each piece on the network."""

    problem: Problem
    order: Order
    costs: Costs
    """Cost of a piece while its rank does not compute."""
    during_compute: TransferCost | None = None
    """Time that a piece takes longer while its rank computes."""
    concurrent: int = 1
    """Number of pieces in flight at a time. They share the link."""
    p2p: PeerCosts | None = None
    """Cost of a piece where two ranks exchange it by messages instead of collectives."""
    overhead: RuntimeOverhead = NO_OVERHEAD
    """Time that the runtime takes to follow the order."""


class PieceExchange:
    """Adds the pieces of an order to an edit of the recorded graph."""

    def __init__(self, graph: Graph, edit: GraphEdit, pieces: OrderedPieces) -> None:
        self._graph, self._edit = graph, edit
        self._costs, self._during_compute = pieces.costs, pieces.during_compute
        self._concurrent, self._p2p = pieces.concurrent, pieces.p2p
        self._overhead = pieces.overhead
        self._pieces = pieces.order.pieces
        self._latency_ns = pieces.problem.network.latency_ns
        self._behind = held_up_by(pieces.order)
        self._threads: dict[int, int] = {}
        """By rank, the resource on which its pieces are sent or wait for a core."""

    def exchange(
        self,
        same: Sequence[StepParts],
        made_by: Mapping[int, Mapping[int, int]],
        step_of: Mapping[int, int],
    ) -> dict[int, list[int]]:
        """Adds the pieces of one step on all ranks. ``made_by`` maps rank and gradient to the
        operation that releases it, ``step_of`` a rank to the step that its pieces count with.
        Returns, by rank and piece, the operation after which the piece has arrived."""
        if self._p2p is None:
            gangs = [self._edit.gang() if len(same) > 1 else NONE for _ in self._pieces]
            return {
                parts.rank: self._send(parts, gangs, made_by[parts.rank], step_of[parts.rank])
                for parts in same
            }
        sent = {
            parts.rank: self._send_alone(parts, self._p2p, made_by[parts.rank], step_of[parts.rank])
            for parts in same
        }
        latency_ns = self._p2p.latency_ns
        arrived = {}
        for parts in same:
            # Where the peer left no record, the rank's own messages stand for its peer's.
            theirs = next((ops for rank, ops in sent.items() if rank != parts.rank), None)
            arrived[parts.rank] = [
                self._delay("on its way", parts, latency_ns, step_of[parts.rank], [op])
                for op in theirs or sent[parts.rank]
            ]
        return arrived

    def _send_alone(
        self, parts: StepParts, p2p: PeerCosts, made_by: Mapping[int, int], step: int
    ) -> list[int]:
        """Adds the messages that one rank sends to its peer, one after the other."""
        stream = self._connection(parts, p2p)
        marks: dict[int, int] = {}
        sent: list[int] = []
        for piece in self._pieces:
            after = {*sent[-1:], *(made_by[part.gradient] for part in piece.slices)}
            if piece.not_before_ns:
                after.add(self._mark(parts, piece.not_before_ns, marks))
            sent.append(
                self._edit.op(
                    f"gradients, {piece.op.label}",
                    kind=piece.op,
                    rank=parts.rank,
                    resource=stream,
                    work_ns=max(1, round(p2p.cost.time_ns(piece.size_bytes))),
                    step=step,
                    size_bytes=piece.size_bytes,
                    after=after,
                )
            )
        return sent

    def _connection(self, parts: StepParts, p2p: PeerCosts) -> int:
        """Returns the resource for the rank's connection to its peer. Other messages between the
        ranks do not queue on it."""
        if parts.rank not in self._threads:
            self._threads[parts.rank] = stream = self._edit.named_resource(
                "communication, swaps",
                kind=ResourceKind.COMMUNICATION,
                rank=parts.rank,
                width=1,
                discipline=Discipline.FIFO,
            )
            rate = p2p.compute_rate or compute_rate_during_communication(self._graph)
            self._edit.interfere((parts.thread, stream, round(rate * RATE_ONE)))
        return self._threads[parts.rank]

    def _send(
        self, parts: StepParts, gangs: Sequence[int], made_by: Mapping[int, int], step: int
    ) -> list[int]:
        """Adds the collectives of one rank. Returns, by piece, the operation after which the piece
        has arrived."""
        ops, edit = self._graph.ops, self._edit
        carried = carried_by(self._graph, parts)
        kind, stream = OpKind(int(ops.kind[carried[0]])), int(ops.resource[carried[0]])
        residual = recorded_over_model(
            self._graph, carried, self._costs[kind], self._during_compute
        )
        marks: dict[int, int] = {}
        sent: list[int] = []
        arrived: list[int] = []
        called = NONE
        for number, piece in enumerate(self._pieces):
            after = {called} if called != NONE else set()
            if piece.op in FIRST_OPS:
                after |= {made_by[part.gradient] for part in piece.slices}
            else:
                after.add(arrived[piece.after])
            if self._behind[number] != NONE:
                after.add(arrived[self._behind[number]])
            if piece.not_before_ns:
                after.add(self._mark(parts, piece.not_before_ns, marks))
            if self._concurrent > 1:
                # Pieces start in the order of their calls.
                called = self._delay("called for", parts, 0, step, sorted(after))
                after = {called}
            extra_ns = self._extra_ns(piece)
            # The extra time during compute was measured for one piece at a time.
            ahead = number - (1 if extra_ns else self._concurrent)
            if ahead >= 0:
                after.add(sent[ahead])
            if extra_ns:
                # A piece that waits for a core is not overtaken either.
                called = self._begin(parts, extra_ns, step, after)
                after = {called}
            whole_ns = self._time_ns(piece, self._costs[kind]) * residual
            sent.append(
                edit.op(
                    f"gradients, {piece.op.label}",
                    kind=piece.op,
                    rank=parts.rank,
                    resource=stream,
                    work_ns=max(1, round(whole_ns)),
                    step=step,
                    size_bytes=piece.size_bytes,
                    gang=gangs[number],
                    after=after,
                )
            )
            arrived.append(self._delay("on its way", parts, self._latency_ns, step, sent[-1:]))
        return arrived

    def _time_ns(self, piece: Piece, cost: TransferCost) -> float:
        if piece.op == OpKind.ALL_REDUCE:
            return cost.time_ns(piece.size_bytes)
        return sum(cost.time_ns(size) for size in self._overhead.messages(piece.size_bytes)) / 2

    def _extra_ns(self, piece: Piece) -> float:
        """Returns the time that a piece takes longer while its rank computes: each of its messages
        waits for a core."""
        if self._during_compute is None:
            return 0.0
        if piece.op == OpKind.ALL_REDUCE:
            return self._during_compute.time_ns(piece.size_bytes)
        messages = self._overhead.messages(piece.size_bytes)
        return sum(self._during_compute.time_ns(size) for size in messages)

    def _begin(self, parts: StepParts, extra_ns: float, step: int, after: set[int]) -> int:
        """Adds the wait for a core before a piece. It progresses while the rank computes, and
        almost stops otherwise."""
        if parts.rank not in self._threads:
            self._threads[parts.rank] = thread = self._edit.named_resource(
                "communication waits for a core",
                kind=ResourceKind.OTHER,
                rank=parts.rank,
                width=1,
                discipline=Discipline.FIFO,
            )
            self._edit.interfere((thread, parts.thread, round(WAITING_RATE * RATE_ONE)))
        return self._edit.op(
            "wait for a core",
            kind=OpKind.DELAY,
            rank=parts.rank,
            resource=self._threads[parts.rank],
            work_ns=max(1, round(extra_ns * WAITING_RATE)),
            step=step,
            after=after,
        )

    def _mark(self, parts: StepParts, at_ns: int, marks: dict[int, int]) -> int:
        """Returns the operation that ends this long after the start of backward."""
        if at_ns not in marks:
            before = [*parts.before, *parts.forward][-1:]
            marks[at_ns] = self._delay("not before", parts, at_ns, parts.step, before)
        return marks[at_ns]

    def _delay(
        self, name: str, parts: StepParts, work_ns: int, step: int, after: Sequence[int]
    ) -> int:
        if not work_ns and len(after) == 1:
            return after[0]
        return self._edit.op(
            name,
            kind=OpKind.DELAY,
            rank=parts.rank,
            resource=NONE,
            work_ns=work_ns,
            step=step,
            after=after,
        )


def recorded_over_model(
    graph: Graph, carried: Sequence[int], cost: TransferCost, during_compute: TransferCost | None
) -> float:
    """Returns the ratio of recorded to modelled time of one step's collectives."""
    sizes = graph.ops.size_bytes[carried].tolist()
    modelled_ns = sum(cost.time_ns(size) for size in sizes)
    if during_compute is not None:
        # All but the last one start while backward runs.
        modelled_ns += sum(during_compute.time_ns(size) for size in sizes[:-1])
    return float(graph.ops.work_ns[carried].sum()) / modelled_ns if modelled_ns else 1.0


def carried_by(graph: Graph, parts: StepParts) -> list[int]:
    """Returns the recorded collectives of the step's gradients."""
    return list(dict.fromkeys(graph.gradients.carried_by[parts.rows].tolist()))


def held_up_by(order: Order) -> list[int]:
    """Returns, for each piece, the last one that must have arrived before it may leave, given the
    window of bytes in flight; NONE if there is none. Pieces arrive in their order."""
    sizes = [piece.size_bytes for piece in order.pieces]
    held_up: list[int] = []
    in_flight_bytes, first = 0, 0
    for number in range(len(sizes)):
        while order.window_bytes is not None and in_flight_bytes >= order.window_bytes:
            in_flight_bytes -= sizes[first]
            first += 1
        held_up.append(first - 1)
        in_flight_bytes += sizes[number]
    return held_up
