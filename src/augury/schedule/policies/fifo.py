"""The policy `fifo`: first come, first served."""

from __future__ import annotations

from dataclasses import dataclass

from augury.core.plan.plan import Order
from augury.core.plan.problem import Problem, Scheme
from augury.schedule.order_parts import exchanged, release_order, whole


@dataclass(frozen=True, slots=True, kw_only=True)
class Fifo:
    """Sends every gradient by itself, whole, in the order of release.

    With a parameter server that is MXNet's default: pulls follow their pushes, and a layer's
    forward waits for its own parameters only. With all-reduce it is data parallelism without
    buckets, where the optimizer steps once everything has arrived: a barrier.
    """

    name: str = "fifo"

    def compile(self, problem: Problem) -> Order:
        messages = [(whole(problem, place),) for place in release_order(problem)]
        return Order(
            policy=self.name,
            pieces=exchanged(problem, messages),
            has_barrier=problem.network.scheme is Scheme.ALL_REDUCE,
        )
