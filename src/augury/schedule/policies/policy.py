"""The protocol of a policy: a compiler from Problems to Orders."""

from __future__ import annotations

from typing import Protocol

from augury.core.plan.plan import Order
from augury.core.plan.problem import Problem


class Policy(Protocol):
    @property
    def name(self) -> str: ...

    def compile(self, problem: Problem) -> Order:
        """Returns the Order for a Problem. Equal Problems give equal Orders, so that all ranks send
        the same pieces in the same order."""
        ...
