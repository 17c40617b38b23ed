"""What an order is worth: its step, or, where times are not sure, the mean of what it may be."""

from __future__ import annotations

from dataclasses import replace

from augury.core.problem import Gradient, Problem
from augury.core.table import I8
from augury.schedule.bursts import find_bursts
from augury.schedule.evaluate import Evaluator
from augury.schedule.line import Line

SCENARIOS = ((0.0, 0.0), (1.0, 0.0), (-1.0, 0.0), (0.0, 1.0), (0.0, -1.0), (1.0, 1.0))
"""By how many standard deviations transfers are slower, and every other burst comes late, the
others early."""


class Judge:
    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.problems = scenarios(problem)
        self._evaluators = [Evaluator(scenario) for scenario in self.problems]

    @property
    def is_certain(self) -> bool:
        return len(self.problems) == 1

    def mean_ns(self, line: Line, cuts: I8, back: I8 | None = None) -> float:
        steps_ns = [evaluator.line_step_ns(line, cuts, back) for evaluator in self._evaluators]
        return sum(steps_ns) / len(steps_ns)


def scenarios(problem: Problem) -> tuple[Problem, ...]:
    """The Problem as it is, and, if anything in it is spread, as it may be."""
    is_spread = any(gradient.spread_ns for gradient in problem.gradients)
    if not is_spread and not problem.network.spread:
        return (problem,)
    sign = [0] * len(problem.gradients)
    for nth, burst in enumerate(find_bursts(problem)):
        for place in burst.gradients:
            sign[place] = 1 if nth % 2 == 0 else -1
    return tuple(
        _scenario(problem, slower, [late * its for its in sign]) for slower, late in SCENARIOS
    )


def _scenario(problem: Problem, slower: float, late: list[float]) -> Problem:
    network = problem.network
    factor = max(0.1, 1 + slower * network.spread)
    gradients = tuple(
        _later(gradient, deviations)
        for gradient, deviations in zip(problem.gradients, late, strict=True)
    )
    last_ns = max(gradient.release_ns for gradient in gradients)
    return replace(
        problem,
        gradients=gradients,
        backward_ns=max(problem.backward_ns, last_ns),
        network=replace(network, ns_per_byte=network.ns_per_byte * factor),
    )


def _later(gradient: Gradient, deviations: float) -> Gradient:
    release_ns = gradient.release_ns + round(deviations * gradient.spread_ns)
    return replace(gradient, release_ns=max(0, release_ns))
