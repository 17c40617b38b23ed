"""What an order is worth: its step as foretold, and a little what it would be were the network
other than foretold; or, where times are known to be spread, the mean over what may happen."""

from __future__ import annotations

from dataclasses import dataclass, replace

from augury.core.columns import I8
from augury.core.plan.plan import Order
from augury.core.plan.problem import Gradient, Problem
from augury.schedule.evaluate import Evaluator, step_ns
from augury.schedule.search.bursts import find_bursts
from augury.schedule.search.byte_line import Line

MISTAKEN = (1.25, 1.6, 0.75)
"""How much slower than foretold a network may turn out."""
MISTAKEN_WEIGHT = 0.01
"""Of each of these beside the step as foretold: a safer order may cost little."""
SCENARIOS = ((0.0, 0.0), (1.0, 0.0), (-1.0, 0.0), (0.0, 1.0), (0.0, -1.0), (1.0, 1.0))
"""By how many standard deviations transfers are slower, and every other burst comes late, the
others early."""
MESSAGE_WEIGHT = 1e-5
"""What share of a step a message more has to gain."""


@dataclass(frozen=True, slots=True, eq=False)
class ScoredOrder:
    line: Line
    cuts: I8
    back: I8 | None
    step_ns: int
    """As foretold."""
    cost_ns: float
    """What decides."""


class Judge:
    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self._weighed = [(Evaluator(may_be), weight) for may_be, weight in what_may_be(problem)]
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
    """The step that an order is believed to come to."""
    if not is_spread(problem):
        return step_ns(problem, order)
    steps_ns = [step_ns(may_be, order) for may_be, _ in what_may_be(problem)]
    return sum(steps_ns) / len(steps_ns)


def is_spread(problem: Problem) -> bool:
    return problem.network.spread > 0 or any(gradient.spread_ns for gradient in problem.gradients)


def what_may_be(problem: Problem) -> tuple[tuple[Problem, float], ...]:
    """With weights; the Problem as it is comes first."""
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
