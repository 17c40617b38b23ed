"""Graph of a Problem under an Order, for replay by the engine.

It is independent of the evaluator, with which it shares only the times of single messages.
"""

from __future__ import annotations

from itertools import pairwise

from augury.core.enums import OpKind, ResourceKind
from augury.core.graph.builder import GraphBuilder
from augury.core.graph.graph import NONE, Graph
from augury.core.plan.plan import LAST_OPS, Order
from augury.core.plan.problem import Problem
from augury.schedule.flat_arrays import FlatOrder, flat_order

ALONE = (OpKind.PUSH, OpKind.PULL)
"""Operations that a rank performs without the other ranks."""
_COMPUTE_PRIORITY = 0
"""Priority of forward and backward; updates follow, in the order of their gradients."""


def build_scheduled(problem: Problem, order: Order, *, num_ranks: int = 1) -> Graph:
    """Returns one step of identical ranks, from the start of backward to the end of the next
    forward, at which the next backward starts."""
    builder = GraphBuilder(meta={"policy": order.policy})
    flat = flat_order(order, problem.network)
    gangs = [
        builder.gang() if num_ranks > 1 and hold_ns and piece.op not in ALONE else NONE
        for piece, hold_ns in zip(order.pieces, flat.hold_ns.tolist(), strict=True)
    ]
    for _ in range(num_ranks):
        _Rank(builder, problem, order, flat, gangs).build()
    return builder.build()


class _Rank:
    def __init__(
        self,
        builder: GraphBuilder,
        problem: Problem,
        order: Order,
        flat: FlatOrder,
        gangs: list[int],
    ) -> None:
        self.builder, self.problem, self.order, self.flat = builder, problem, order, flat
        self.gangs = gangs
        self.rank = builder.rank()
        self.thread = builder.resource("main thread", rank=self.rank)
        self.links = [
            builder.resource(name, rank=self.rank, kind=ResourceKind.COMMUNICATION)
            for name in (("push", "pull") if flat.link.any() else ("link",))
        ]
        self.begin = self.op("begin", OpKind.MARK, 0, [])

    def build(self) -> None:
        released, backward = self.backward()
        carried_by = self.pieces(released)
        between = self.op(
            "between", OpKind.OTHER, self.problem.between_ns, [backward], resource=self.thread
        )
        forward = (self.with_barrier if self.order.has_barrier else self.without_barrier)(
            between, carried_by
        )
        self.builder.carry(forward, self.begin)

    def op(
        self,
        name: str,
        kind: OpKind,
        work_ns: int,
        after: list[int],
        *,
        resource: int = NONE,
        priority: int = _COMPUTE_PRIORITY,
        size_bytes: int = 0,
        gang: int = NONE,
    ) -> int:
        """Adds an operation. One without work has no resource: it would delay others by a round."""
        return self.builder.op(
            name,
            kind=kind,
            rank=self.rank,
            work_ns=work_ns,
            resource=resource if work_ns else NONE,
            priority=priority,
            size_bytes=size_bytes,
            gang=gang,
            after=sorted(set(after)),
        )

    def backward(self) -> tuple[dict[int, int], int]:
        """Adds backward. Returns the operation that ends at each release time, and the last one."""
        at_ns = {gradient.release_ns for gradient in self.problem.gradients}
        released = {0: self.begin}
        last = self.begin
        for before_ns, until_ns in pairwise(sorted({0, *at_ns, self.problem.backward_ns})):
            work_ns = until_ns - before_ns
            last = self.op("backward", OpKind.BACKWARD, work_ns, [last], resource=self.thread)
            released[until_ns] = last
        return released, last

    def pieces(self, released: dict[int, int]) -> list[list[int]]:
        """Adds the pieces. Returns the arrivals that complete each gradient."""
        flat = self.flat
        sent: tuple[list[int], list[int]] = ([], [])
        done: list[int] = []
        arrived: list[int] = []
        carried_by: list[list[int]] = [[] for _ in self.problem.gradients]
        for place, piece in enumerate(self.order.pieces):
            link = int(flat.link[place])
            releases_ns = {
                self.problem.gradients[part.gradient].release_ns for part in piece.slices
            }
            after = [released[release_ns] for release_ns in releases_ns]
            after += [done[before] for before in sent[link][-1:]]
            after += self.made_room(sent[link], arrived)
            if piece.after != NONE:
                lag_ns = int(flat.lag_ns[place])
                after.append(self.later("server", OpKind.DELAY, lag_ns, arrived[piece.after]))
            if piece.not_before_ns:
                after.append(self.later("mark", OpKind.DELAY, piece.not_before_ns, self.begin))
            done.append(
                self.op(
                    "piece",
                    piece.op,
                    int(flat.hold_ns[place]),
                    after,
                    resource=self.links[link],
                    size_bytes=int(flat.size_bytes[place]),
                    gang=self.gangs[place],
                )
            )
            arrived.append(self.later("latency", OpKind.DELAY, flat.latency_ns, done[-1]))
            sent[link].append(place)
            if piece.op in LAST_OPS:
                for part in piece.slices:
                    carried_by[part.gradient].append(arrived[-1])
        return carried_by

    def made_room(self, sent: list[int], arrived: list[int]) -> list[int]:
        """Returns the piece that must arrive before less than the window is in flight."""
        in_flight_bytes = 0
        for before in reversed(sent):
            in_flight_bytes += int(self.flat.size_bytes[before])
            if in_flight_bytes >= self.flat.window_bytes:
                return [arrived[before]]
        return []

    def later(self, name: str, kind: OpKind, work_ns: int, after: int) -> int:
        return self.op(name, kind, work_ns, [after]) if work_ns else after

    def update(self, place: int, after: list[int]) -> int:
        gradient = self.problem.gradients[place]
        return self.op(
            gradient.name,
            OpKind.UPDATE,
            gradient.update_ns,
            after,
            resource=self.thread,
            priority=_COMPUTE_PRIORITY + 1 + place,
        )

    def with_barrier(self, between: int, carried_by: list[list[int]]) -> int:
        everything = [between, *(arrival for arrivals in carried_by for arrival in arrivals)]
        there = self.op("barrier", OpKind.MARK, 0, everything)
        updates = [self.update(place, [there]) for place in range(len(carried_by))]
        return self.op(
            "forward", OpKind.FORWARD, self.problem.forward_ns, updates, resource=self.thread
        )

    def without_barrier(self, between: int, carried_by: list[list[int]]) -> int:
        needs_ns = [gradient.need_ns for gradient in self.problem.gradients]
        forward = self.op("forward", OpKind.FORWARD, needs_ns[0], [between], resource=self.thread)
        for place, (need_ns, until_ns) in enumerate(pairwise([*needs_ns, self.problem.forward_ns])):
            updated = self.update(place, [between, *carried_by[place]])
            forward = self.op(
                "forward",
                OpKind.FORWARD,
                until_ns - need_ns,
                [forward, updated],
                resource=self.thread,
            )
        return forward
