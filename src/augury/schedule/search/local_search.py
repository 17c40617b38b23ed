"""Improves an order by small changes: removes cuts, moves cuts, reorders pulls."""

from __future__ import annotations

from heapq import heappop, heappush

import numpy as np

from augury.core.columns import I8
from augury.core.plan.problem import Problem, Scheme
from augury.schedule.evaluate import Evaluator
from augury.schedule.search.byte_line import flat_line
from augury.schedule.search.robust_cost import Judge, ScoredOrder

MOVES = (-0.5, 0.5, -0.2, 0.2)
"""Moves of a cut, as shares of the message that becomes shorter."""


def better(one: ScoredOrder, other: ScoredOrder) -> ScoredOrder:
    return other if other.cost_ns < one.cost_ns else one


def improve(
    judge: Judge, best: ScoredOrder, *, good_enough_ns: float, most_tries: int
) -> ScoredOrder:
    """Removes every useless cut; then moves cuts until the order is good enough."""
    tries = most_tries
    for nth in reversed(range(len(best.cuts) - 1)):
        if tries <= 0:
            return best
        tries -= 1
        best = better(best, judge.judged(best.line, np.delete(best.cuts, nth)))
    for move in MOVES:
        nth = 0
        while nth < len(best.cuts) - 1:
            if tries <= 0 or best.step_ns <= good_enough_ns:
                return best
            tries -= 1
            best = better(best, judge.judged(best.line, _moved(best, nth, move)))
            nth += 1
    return best


def _moved(best: ScoredOrder, nth: int, move: float) -> I8:
    before, cut, after = (int(at) for at in np.concatenate([[0], best.cuts])[nth : nth + 3])
    cuts = best.cuts.copy()
    cuts[nth] += int(move * (cut - before if move < 0 else after - cut))
    return best.line.aligned(cuts)


def with_urgent_pulls(judge: Judge, best: ScoredOrder) -> ScoredOrder:
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
    return better(best, judge.judged(best.line, best.cuts, np.array(back, np.int64)))
