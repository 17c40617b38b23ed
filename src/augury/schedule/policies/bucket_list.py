"""The policy `ddp-list`: the best list of bucket sizes for stock DDP."""

from __future__ import annotations

from dataclasses import dataclass

from augury.core.enums import OpKind
from augury.core.plan.plan import Order
from augury.core.plan.problem import Problem
from augury.schedule.order_parts import (
    Message,
    exchanged,
    fill_buckets,
    hold_ns,
    release_order,
    size_of,
    whole,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketList:
    """DDP fills buckets in the order of release and accepts a size for each of them. Of all ways to
    cut that sequence, this takes the one whose last bucket ends first; among equals, the one with
    the fewest buckets. It is exact: buckets are sent in order, so an earlier end never delays
    later buckets."""

    name: str = "ddp-list"

    def compile(self, problem: Problem) -> Order:
        return Order(
            policy=self.name, pieces=exchanged(problem, self._buckets(problem)), has_barrier=True
        )

    def _buckets(self, problem: Problem) -> list[Message]:
        coming = release_order(problem)
        sizes_bytes = [problem.gradients[place].size_bytes for place in coming]
        reach_bytes = [0]
        for size_bytes in sizes_bytes:
            reach_bytes.append(reach_bytes[-1] + size_bytes)
        # For the first n gradients: end of sending, number of buckets, start of the last bucket.
        best = [(0, 0, 0)]
        for end in range(1, len(coming) + 1):
            released_ns = problem.gradients[coming[end - 1]].release_ns
            best.append(
                min(
                    (
                        max(best[begin][0], released_ns)
                        + hold_ns(problem.network, reach_bytes[end] - reach_bytes[begin]),
                        best[begin][1] + 1,
                        begin,
                    )
                    for begin in range(end)
                )
            )
        buckets: list[Message] = []
        end = len(coming)
        while end:
            begin = best[end][2]
            buckets.append(tuple(whole(problem, place) for place in coming[begin:end]))
            end = begin
        return buckets[::-1]


def bucket_caps(problem: Problem, order: Order) -> tuple[int, ...] | None:
    """Returns the list of sizes that makes stock DDP send this order; None where there is none."""
    if not order.has_barrier or any(piece.op != OpKind.ALL_REDUCE for piece in order.pieces):
        return None
    caps = tuple(size_of(piece.slices) for piece in order.pieces)
    coming = release_order(problem)
    filled = fill_buckets([problem.gradients[place].size_bytes for place in coming], caps)
    meant = [tuple(whole(problem, coming[nth]) for nth in bucket) for bucket in filled]
    is_same = [{*bucket} for bucket in meant] == [{*piece.slices} for piece in order.pieces]
    return caps if is_same else None
