"""Our own policy."""

from __future__ import annotations

from dataclasses import dataclass, replace

from augury.core.plan.plan import Order
from augury.core.plan.problem import Problem
from augury.schedule.policies.baselines import RIVALS
from augury.schedule.search.byte_line import order_of_line
from augury.schedule.search.robust_cost import expected_ns
from augury.schedule.search.search import Search


@dataclass(frozen=True, slots=True, kw_only=True)
class Augury:
    """While backward runs, messages of the most urgent bytes end when more urgent ones come; which
    gaps they fill, and which they bridge, is found by dynamic programming with what a message
    costs. What is left when backward is over goes by priority, in as few messages as the step
    allows. With a parameter server messages are small enough to be pulled while others are pushed,
    and the urgent ones are pulled first. No barrier. The best of several such orders is improved
    by small changes.

    Orders of the same step may differ much in what they come to if the network is slower than
    foretold: some leave a margin in gaps, and what would be counts a little. Where times are known
    to be spread, the mean over what may happen decides.

    Never worse than another policy, as foretold: unless ours is so near the bound that no order
    can be better by more than ``near``, the others' are compiled too, and the best is taken.
    """

    name: str = "augury"
    near: float = 0.005

    def compile(self, problem: Problem) -> Order:
        search = Search(problem)
        best = search.run()
        ours = order_of_line(self.name, problem, best.line, best.cuts, best.back)
        if best.step_ns <= (1 + self.near) * search.bound_ns:
            return ours
        theirs = [replace(rival.compile(problem), policy=self.name) for rival in RIVALS]
        return min([ours, *theirs], key=lambda order: expected_ns(problem, order))
