"""Pieces of gradients on the ranks' communication streams, strictly in the order of their list."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from augury.build.problem.step_parts import StepParts
from augury.core.enums import Discipline, OpKind, ResourceKind
from augury.core.graph.graph import NONE, RATE_ONE, Graph
from augury.core.plan.plan import FIRST_OPS, Order, Piece
from augury.core.plan.problem import Problem
from augury.costs.collective_costs import Costs
from augury.costs.p2p_exchange import P2PExchange
from augury.costs.piece_costs import compute_rate_during_communication
from augury.costs.runtime_overhead import RuntimeOverhead
from augury.costs.transfer_times import TransferCost
from augury.passes.graph_edit import GraphEdit

ALMOST_STILL = 0.05
"""How fast a thread goes on that waits for a core which compute has."""


class PieceExchange:
    """``graph`` is the recorded one, ``edit`` what becomes of it; ``at_once``: how many pieces are
    under way at a time and share the link; ``swaps``: each rank sends by itself, and takes in what
    the other one sends."""

    def __init__(
        self,
        graph: Graph,
        edit: GraphEdit,
        costs: Costs,
        problem: Problem,
        order: Order,
        beside: TransferCost | None,
        at_once: int,
        swaps: P2PExchange | None,
        following: RuntimeOverhead,
    ) -> None:
        self._graph, self._edit, self._costs, self._beside = graph, edit, costs, beside
        self._at_once, self._threads = at_once, dict[int, int]()
        self._swaps, self._following = swaps, following
        self._pieces, self._latency_ns = order.pieces, problem.network.latency_ns
        self._behind = held_up_by(order)

    def exchange(
        self,
        same: Sequence[StepParts],
        made_by: Mapping[int, Mapping[int, int]],
        step_of: Mapping[int, int],
    ) -> dict[int, list[int]]:
        """By ranks that take the step together. ``made_by``: by rank and gradient, after which
        operation it is there; ``step_of``: the step that a rank's pieces count with. Gives, by
        rank and piece, the operation after which it has arrived."""
        if self._swaps is None:
            gangs = [self._edit.gang() if len(same) > 1 else NONE for _ in self._pieces]
            return {
                parts.rank: self._send(parts, gangs, made_by[parts.rank], step_of[parts.rank])
                for parts in same
            }
        sent = {
            parts.rank: self._send_alone(
                parts, self._swaps, made_by[parts.rank], step_of[parts.rank]
            )
            for parts in same
        }
        latency_ns = self._swaps.latency_ns
        arrived = {}
        for parts in same:
            # A rank whose other one left no record gets what is like its own.
            theirs = next((ops for rank, ops in sent.items() if rank != parts.rank), None)
            arrived[parts.rank] = [
                self._delay("on its way", parts, latency_ns, step_of[parts.rank], [op])
                for op in theirs or sent[parts.rank]
            ]
        return arrived

    def _send_alone(
        self, parts: StepParts, swaps: P2PExchange, made_by: Mapping[int, int], step: int
    ) -> list[int]:
        """One behind the other, by one rank."""
        stream = self._connection(parts, swaps)
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
                    work_ns=max(1, round(swaps.cost.time_ns(piece.size_bytes))),
                    step=step,
                    size_bytes=piece.size_bytes,
                    after=after,
                )
            )
        return sent

    def _connection(self, parts: StepParts, swaps: P2PExchange) -> int:
        """Of its own: what else ranks send each other does not queue there."""
        if parts.rank not in self._threads:
            self._threads[parts.rank] = stream = self._edit.named_resource(
                "communication, swaps",
                kind=ResourceKind.COMMUNICATION,
                rank=parts.rank,
                width=1,
                discipline=Discipline.FIFO,
            )
            rate = swaps.compute_rate or compute_rate_during_communication(self._graph)
            self._edit.interfere((parts.thread, stream, round(rate * RATE_ONE)))
        return self._threads[parts.rank]

    def _send(
        self, parts: StepParts, gangs: Sequence[int], made_by: Mapping[int, int], step: int
    ) -> list[int]:
        """On one rank. ``made_by``: after which operation each gradient is there; ``step``: the one
        that pieces count with. Gives, of every piece, the operation after which it has arrived."""
        ops, edit = self._graph.ops, self._edit
        carried = carried_by(self._graph, parts)
        kind, stream = OpKind(int(ops.kind[carried[0]])), int(ops.resource[carried[0]])
        residual = recorded_over_model(self._graph, carried, self._costs[kind], self._beside)
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
            if self._at_once > 1:
                # Nobody overtakes who has not been called for.
                called = self._delay("called for", parts, 0, step, sorted(after))
                after = {called}
            extra_ns = self._extra_ns(piece)
            # What small ones take beside compute is known of one behind the other.
            ahead = number - (1 if extra_ns else self._at_once)
            if ahead >= 0:
                after.add(sent[ahead])
            if extra_ns:
                # Nor does anybody overtake who waits for a core.
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
        return sum(cost.time_ns(size) for size in self._following.messages(piece.size_bytes)) / 2

    def _extra_ns(self, piece: Piece) -> float:
        """What it takes longer while its rank computes: every message waits for a core."""
        if self._beside is None:
            return 0.0
        if piece.op == OpKind.ALL_REDUCE:
            return self._beside.time_ns(piece.size_bytes)
        messages = self._following.messages(piece.size_bytes)
        return sum(self._beside.time_ns(size) for size in messages)

    def _begin(self, parts: StepParts, extra_ns: float, step: int, after: set[int]) -> int:
        """What a piece takes before it progresses while its rank computes, and hardly else."""
        if parts.rank not in self._threads:
            self._threads[parts.rank] = thread = self._edit.named_resource(
                "communication waits for a core",
                kind=ResourceKind.OTHER,
                rank=parts.rank,
                width=1,
                discipline=Discipline.FIFO,
            )
            self._edit.interfere((thread, parts.thread, round(ALMOST_STILL * RATE_ONE)))
        return self._edit.op(
            "wait for a core",
            kind=OpKind.DELAY,
            rank=parts.rank,
            resource=self._threads[parts.rank],
            work_ns=max(1, round(extra_ns * ALMOST_STILL)),
            step=step,
            after=after,
        )

    def _mark(self, parts: StepParts, at_ns: int, marks: dict[int, int]) -> int:
        """So long after the start of backward."""
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
    graph: Graph, carried: Sequence[int], cost: TransferCost, beside: TransferCost | None
) -> float:
    """How this step's collectives differed from what the model says of their sizes."""
    sizes = graph.ops.size_bytes[carried].tolist()
    said_ns = sum(cost.time_ns(size) for size in sizes)
    if beside is not None:
        # All but the last leave while backward runs.
        said_ns += sum(beside.time_ns(size) for size in sizes[:-1])
    return float(graph.ops.work_ns[carried].sum()) / said_ns if said_ns else 1.0


def carried_by(graph: Graph, parts: StepParts) -> list[int]:
    """The recorded collectives of the step's gradients."""
    return list(dict.fromkeys(graph.gradients.carried_by[parts.rows].tolist()))


def held_up_by(order: Order) -> list[int]:
    """Of every piece, the last one that must have arrived before it may leave, by the window of
    bytes under way; NONE, if it need not wait for any. Pieces arrive in their order."""
    sizes = [piece.size_bytes for piece in order.pieces]
    held_up: list[int] = []
    under_way_bytes, first = 0, 0
    for number in range(len(sizes)):
        while order.window_bytes is not None and under_way_bytes >= order.window_bytes:
            under_way_bytes -= sizes[first]
            first += 1
        held_up.append(first - 1)
        under_way_bytes += sizes[number]
    return held_up
