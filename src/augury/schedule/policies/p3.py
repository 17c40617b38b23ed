"""The policy `p3`: priority-based parameter propagation (P3)."""

from __future__ import annotations

from dataclasses import dataclass

from augury.core.plan.plan import Order
from augury.core.plan.problem import Problem
from augury.schedule.order_parts import by_priority, cut


@dataclass(frozen=True, slots=True, kw_only=True)
class P3:
    """Published: slices of at most 40,000 parameters, a queue by priority, one slice in flight at
    a time; the next forward waits layer by layer. Assumed: four bytes to a parameter, whatever
    its type; a slice is in flight until it has arrived; the server answers by priority
    too; the queue decides as if all times were as predicted."""

    name: str = "p3"
    slice_bytes: int = 160_000

    def compile(self, problem: Problem) -> Order:
        one_at_a_time = 1
        messages = [
            (part,)
            for place in range(len(problem.gradients))
            for part in cut(problem, place, self.slice_bytes)
        ]
        return Order(
            policy=self.name,
            pieces=by_priority(problem, messages, window_bytes=one_at_a_time),
            has_barrier=False,
            window_bytes=one_at_a_time,
        )
