"""Our own policy: the best order that a search finds, never worse than any other policy's."""

from __future__ import annotations

from dataclasses import dataclass, replace

from augury.core.plan import Order
from augury.core.problem import Problem
from augury.schedule.evaluate import step_ns
from augury.schedule.rivals import RIVALS


@dataclass(frozen=True, slots=True, kw_only=True)
class Augury:
    name: str = "augury"

    def compile(self, problem: Problem) -> Order:
        orders = [rival.compile(problem) for rival in RIVALS]
        best = min(orders, key=lambda order: (step_ns(problem, order), len(order.pieces)))
        return replace(best, policy=self.name)
