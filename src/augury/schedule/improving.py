"""Small changes to an order: cuts left out, cuts moved, pulls in another order."""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np

from augury.core.problem import Problem, Scheme
from augury.core.table import I8
from augury.schedule.evaluate import Evaluator
from augury.schedule.judging import Judge
from augury.schedule.line import Line, flat_line

MOVES = (-0.5, 0.5, -0.2, 0.2)
"""Of the message that becomes shorter."""


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    mean_ns: float
    line: Line
    cuts: I8
    back: I8 | None = None

    def is_better_than(self, other: Candidate | None) -> bool:
        """Of equally good ones, that with fewer messages."""
        if other is None or self.mean_ns != other.mean_ns:
            return other is None or self.mean_ns < other.mean_ns
        return len(self.cuts) < len(other.cuts)


def improve(judge: Judge, best: Candidate, *, good_enough_ns: float, most_tries: int) -> Candidate:
    """Leaves out every cut that is of no use; as long as that is not good enough, moves cuts."""
    tries = most_tries
    for nth in reversed(range(len(best.cuts) - 1)):
        if tries <= 0:
            return best
        tries -= 1
        best = _tried(judge, best, np.delete(best.cuts, nth))
    for move in MOVES:
        nth = 0
        while nth < len(best.cuts) - 1:
            if tries <= 0 or best.mean_ns <= good_enough_ns:
                return best
            tries -= 1
            before = best.cuts[nth - 1] if nth else 0
            shorter = best.cuts[nth] - before if move < 0 else best.cuts[nth + 1] - best.cuts[nth]
            moved = best.cuts.copy()
            moved[nth] += int(move * shorter)
            best = _tried(judge, best, best.line.aligned(moved))
            nth += 1
    return best


def _tried(judge: Judge, best: Candidate, cuts: I8) -> Candidate:
    new = Candidate(judge.mean_ns(best.line, cuts), best.line, cuts)
    return new if new.is_better_than(best) else best


def with_urgent_pulls(judge: Judge, best: Candidate) -> Candidate:
    """The most urgent first among what the server has, whenever the way back is free."""
    problem: Problem = judge.problem
    if problem.network.scheme is not Scheme.PARAMETER_SERVER:
        return best
    number = len(best.cuts)
    order = flat_line(problem, best.line, best.cuts)
    outcome = Evaluator(problem).outcome(order)
    there_ns = (outcome.arrive_ns[:number] + order.lag_ns[number:]).tolist()
    hold_ns = order.hold_ns[:number].tolist()
    urgency = np.minimum.reduceat(order.gradient, order.first[:number]).tolist()
    waiting: list[tuple[int, int]] = []
    back: list[int] = []
    seen = now_ns = 0
    while len(back) < number:
        if not waiting:
            now_ns = max(now_ns, there_ns[seen])
        while seen < number and there_ns[seen] <= now_ns:
            heappush(waiting, (urgency[seen], seen))
            seen += 1
        back.append(heappop(waiting)[1])
        now_ns += hold_ns[back[-1]]
    pulled = np.array(back, np.int64)
    new = Candidate(judge.mean_ns(best.line, best.cuts, pulled), best.line, best.cuts, pulled)
    return new if new.is_better_than(best) else best
