"""The policy `augury`: a search over orders that takes message overhead into account."""

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
    """While backward runs, messages of the most urgent bytes end when more urgent gradients are
    released; dynamic programming over the cost of messages finds the gaps that they fill or bridge.
    The rest is sent by priority after backward, in as few messages as the step allows. With a
    parameter server messages are small enough to be pulled while others are pushed, and the urgent
    ones are pulled first. There is no barrier. The best of several such orders is improved by small
    changes.

    Orders with the same predicted step may differ much if the network is slower than assumed: some
    leave a margin in gaps, and such cases have a small weight. Where the spread of times is known,
    the mean over scenarios decides.

    The predicted step is never longer than that of another policy: unless the order is within
    ``near`` of the bound, the other policies are compiled too, and the best order is taken.
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
