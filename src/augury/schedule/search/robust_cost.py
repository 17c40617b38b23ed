"""The robust cost of an order: its predicted step, weighted with steps under other conditions.

Steps under a slower or faster network have a small weight. Where the spread of times is known, the
cost is the mean over scenarios.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from augury.core.columns import I8
from augury.core.plan.plan import Order
from augury.core.plan.problem import Gradient, Problem
from augury.schedule.evaluate import Evaluator, step_ns
from augury.schedule.search.bursts import find_bursts
from augury.schedule.search.byte_line import Line

MISTAKEN = (1.25, 1.6, 0.75)
"""Factors by which the network may be slower than assumed."""
MISTAKEN_WEIGHT = 0.01
"""Weight of each factor beside the predicted step: a safer order may cost little."""
SCENARIOS = ((0.0, 0.0), (1.0, 0.0), (-1.0, 0.0), (0.0, 1.0), (0.0, -1.0), (1.0, 1.0))
"""Scenarios, in standard deviations: how much slower transfers are, and how late every other burst
is, the others being early."""
MESSAGE_WEIGHT = 1e-5
"""Share of a step that an additional message must gain."""


@dataclass(frozen=True, slots=True, eq=False)
class ScoredOrder:
    line: Line
    cuts: I8
    back: I8 | None
    step_ns: int
    """The predicted step."""
    cost_ns: float
    """The robust cost, by which orders are compared."""


class Judge:
    """Computes the robust cost of many lines under one Problem."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self._weighed = [
            (Evaluator(scenario), weight) for scenario, weight in scenarios_of(problem)
        ]
        self._total_weight = sum(weight for _, weight in self._weighed)

    def judged(self, line: Line, cuts: I8, back: I8 | None = None) -> ScoredOrder:
        steps_ns = [evaluator.line_step_ns(line, cuts, back) for evaluator, _ in self._weighed]
        mean_ns = (
            sum(
                weight * step_ns
                for (_, weight), step_ns in zip(self._weighed, steps_ns, strict=True)
            )
            / self._total_weight
        )
        cost_ns = mean_ns + MESSAGE_WEIGHT * len(cuts) * steps_ns[0]
        return ScoredOrder(line, cuts, back, steps_ns[0], cost_ns)


def expected_ns(problem: Problem, order: Order) -> float:
    """Returns the expected step of an order over scenarios."""
    if not is_spread(problem):
        return step_ns(problem, order)
    steps_ns = [step_ns(scenario, order) for scenario, _ in scenarios_of(problem)]
    return sum(steps_ns) / len(steps_ns)


def is_spread(problem: Problem) -> bool:
    return problem.network.spread > 0 or any(gradient.spread_ns for gradient in problem.gradients)


def scenarios_of(problem: Problem) -> tuple[tuple[Problem, float], ...]:
    """Returns problems with weights; the Problem as it is comes first."""
    if not is_spread(problem):
        mistaken = tuple((_slower(problem, factor), MISTAKEN_WEIGHT) for factor in MISTAKEN)
        return ((problem, 1.0), *mistaken)
    sign = [0] * len(problem.gradients)
    for nth, burst in enumerate(find_bursts(problem)):
        for place in burst.gradients:
            sign[place] = 1 if nth % 2 == 0 else -1
    return tuple(
        (
            _later(_slower(problem, 1 + slower * problem.network.spread), [late * s for s in sign]),
            1.0,
        )
        for slower, late in SCENARIOS
    )


def _slower(problem: Problem, factor: float) -> Problem:
    network = problem.network
    return replace(
        problem, network=replace(network, ns_per_byte=network.ns_per_byte * max(0.1, factor))
    )


def _later(problem: Problem, deviations: list[float]) -> Problem:
    gradients = tuple(
        _late(gradient, late) for gradient, late in zip(problem.gradients, deviations, strict=True)
    )
    last_ns = max(gradient.release_ns for gradient in gradients)
    return replace(problem, gradients=gradients, backward_ns=max(problem.backward_ns, last_ns))


def _late(gradient: Gradient, deviations: float) -> Gradient:
    release_ns = gradient.release_ns + round(deviations * gradient.spread_ns)
    return replace(gradient, release_ns=max(0, release_ns))
