"""The search for an order: gaps filled in several ways, the rest cut for each, the best refined."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import NamedTuple

from augury.core.plan.problem import Problem
from augury.schedule.lower_bound import lower_bound
from augury.schedule.search.assemble import Laying
from augury.schedule.search.backward_phase import Filled, fill_gaps, start_points
from augury.schedule.search.local_search import better, improve, with_urgent_pulls
from augury.schedule.search.robust_cost import Judge, ScoredOrder, is_spread
from augury.schedule.search.search_inputs import Floats, terms_of
from augury.schedule.search.tail_phase import cut_rest

GOOD_ENOUGH = 1.001
"""Of the bound: cuts are not moved further then."""
SMALLER = 1.6
LEAST_SHARE = 1 / 400
"""How message sizes are tried with a parameter server, down to which share of the largest."""
MOST_TRIES = 120
BESIDE = 1.003
"""How far what deadlines say may lie from what evaluation says."""


class Kind(NamedTuple):
    """Of orders to look for."""

    share_behind: float
    """Of the updates behind a gradient, how many will be done after it has come."""
    slower: float
    """How much slower than foretold the network may be in gaps."""
    width: int
    """How many of them."""


KINDS = (Kind(1.0, 1.0, 2), Kind(1.0, 1.25, 1), Kind(1.0, 1.6, 1), Kind(0.0, 1.0, 1))


class Search:
    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.terms = terms_of(problem)
        self.judge = Judge(problem)
        self.bound_ns = lower_bound(problem)
        self._points_ns = start_points(problem, self.terms)

    def run(self) -> ScoredOrder:
        best, best_size_ns = self._judged(self._all_at_once()), 0.0
        for tail_ns, way in self._ways():
            for most_ns in self._sizes(way, best_size_ns):
                laying = self._laid(tail_ns, way, most_ns, best)
                if laying is not None:
                    new = self._judged(laying)
                    if better(best, new) is new:
                        best, best_size_ns = new, most_ns
        # Only a step that is certain is held against the bound.
        good_enough_ns = 0.0 if is_spread(self.problem) else GOOD_ENOUGH * self.bound_ns
        best = improve(self.judge, best, good_enough_ns=good_enough_ns, most_tries=MOST_TRIES)
        return with_urgent_pulls(self.judge, best)

    def _judged(self, laying: Laying) -> ScoredOrder:
        return self.judge.judged(*laying.line())

    def _all_at_once(self) -> Laying:
        laying = Laying(self.terms)
        laying.lay_rest(())
        return laying

    def _ways(self) -> Iterator[tuple[Floats, Filled]]:
        terms = self.terms
        for kind in KINDS:
            if kind.share_behind < 1.0 and not terms.update_ns.any():
                continue
            is_careful = kind.slower > 1.0
            tail_ns = terms.tail_ns(kind.share_behind)
            for way in fill_gaps(
                terms,
                self._points_ns,
                tail_ns,
                bound_ns=self.bound_ns,
                slower=max(kind.slower, 1 + terms.spread) if is_careful else 1.0,
                early_ns=terms.spread_ns if is_careful else 0.0,
                width=kind.width,
            ):
                yield tail_ns, way

    def _laid(
        self, tail_ns: Floats, way: Filled, most_ns: float, best: ScoredOrder
    ) -> Laying | None:
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
                between_ns=(float(self.bound_ns), BESIDE * best.step_ns),
                most_ns=most_ns,
            )
        if sizes_ns is None:
            return None
        laying.lay_rest(sizes_ns)
        return laying

    def _sizes(self, way: Filled, best_size_ns: float) -> Iterator[float]:
        """With a parameter server small messages are pulled while others are pushed. Once some
        size was best, only its neighbours are tried in other ways."""
        if not self.terms.is_served:
            yield inf
        elif best_size_ns:
            yield from (best_size_ns, best_size_ns / SMALLER, best_size_ns * SMALLER)
        else:
            largest_ns = max([way.left_ns, *(room_ns for _, room_ns in way.messages)])
            size_ns = largest_ns
            while size_ns >= max(self.terms.overhead_ns / 4, LEAST_SHARE * largest_ns, 1.0):
                yield size_ns
                size_ns /= SMALLER
