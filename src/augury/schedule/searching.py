"""The search for an order: gaps filled in several ways, the rest cut for each, the best refined."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

from augury.core.problem import Problem
from augury.schedule.bound import lower_bound
from augury.schedule.gaps import Filled, fill_gaps, start_points
from augury.schedule.improving import Candidate, improve, with_urgent_pulls
from augury.schedule.judging import Judge
from augury.schedule.laying import Laying
from augury.schedule.rest import cut_rest
from augury.schedule.terms import Floats, terms_of

GOOD_ENOUGH = 1.001
"""Of the bound: the search ends there."""
SHARES_BEHIND = (1.0, 0.0)
"""Of updates behind a gradient that will be done after it has come: all, or none."""
SMALLER = 1.6
LEAST_SHARE = 1 / 400
"""How message sizes are tried with a parameter server, down to which share of the largest."""
MOST_TRIES = 120
BESIDE = 1.003
"""How far what deadlines say may lie from what evaluation says."""


class Search:
    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.terms = terms_of(problem)
        self.judge = Judge(problem)
        self.bound_ns = lower_bound(problem)
        self._points_ns = start_points(problem, self.terms)

    @property
    def good_enough_ns(self) -> float:
        """Only a step that is certain is held against the bound."""
        return GOOD_ENOUGH * self.bound_ns if self.judge.is_certain else 0.0

    def run(self) -> Candidate:
        best = self._judged(self._all_at_once())
        for tail_ns, way in self._ways():
            for most_ns in self._sizes(way):
                laying = self._laid(tail_ns, way, most_ns, best)
                if laying is not None:
                    new = self._judged(laying)
                    best = new if new.is_better_than(best) else best
            if best.mean_ns <= self.good_enough_ns:
                break
        best = improve(self.judge, best, good_enough_ns=self.good_enough_ns, most_tries=MOST_TRIES)
        return with_urgent_pulls(self.judge, best)

    def _judged(self, laying: Laying) -> Candidate:
        line, cuts = laying.line()
        return Candidate(self.judge.mean_ns(line, cuts), line, cuts)

    def _all_at_once(self) -> Laying:
        laying = Laying(self.terms)
        laying.lay_rest(())
        return laying

    def _ways(self) -> Iterator[tuple[Floats, Filled]]:
        shares = SHARES_BEHIND if self.terms.update_ns.any() else SHARES_BEHIND[:1]
        margins = (0.0,) if self.judge.is_certain else (0.0, 1.0)
        for share in shares:
            tail_ns = self.terms.tail_ns(share)
            for deviations in margins:
                for way in fill_gaps(
                    self.terms,
                    self._points_ns,
                    tail_ns,
                    bound_ns=self.bound_ns,
                    deviations=deviations,
                ):
                    yield tail_ns, way

    def _laid(self, tail_ns: Floats, way: Filled, most_ns: float, best: Candidate) -> Laying | None:
        """None if the rest cannot be cut so that it would beat the best so far."""
        laying = Laying(self.terms)
        for now_ns, room_ns in way.messages:
            laying.fill_gap(now_ns, room_ns, most_ns)
        left_ns = laying.left_ns()
        sizes_ns: list[float] | None = []
        if left_ns.any():
            sizes_ns = cut_rest(
                self.terms,
                left_ns,
                tail_ns,
                begin_ns=float(self._points_ns[-1]),
                between_ns=(float(self.bound_ns), BESIDE * best.mean_ns),
                most_ns=most_ns,
            )
        if sizes_ns is None:
            return None
        laying.lay_rest(sizes_ns)
        return laying

    def _sizes(self, way: Filled) -> Iterator[float]:
        """With a parameter server small messages are pulled while others are pushed."""
        if not self.terms.is_served:
            yield inf
            return
        largest_ns = max([way.left_ns, *(room_ns for _, room_ns in way.messages)])
        size_ns = largest_ns
        while size_ns >= max(self.terms.overhead_ns / 4, LEAST_SHARE * largest_ns, 1.0):
            yield size_ns
            size_ns /= SMALLER
