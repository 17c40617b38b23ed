"""The search for an order: fills gaps in several ways, cuts the rest, refines the best."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil, inf
from typing import NamedTuple

import numpy as np

from augury.core.columns import I8
from augury.core.plan.problem import Problem
from augury.schedule.lower_bound import lower_bound
from augury.schedule.search.backward_phase import Filled, fill_gaps, start_points
from augury.schedule.search.byte_line import Line
from augury.schedule.search.local_search import better, improve, with_urgent_pulls
from augury.schedule.search.robust_cost import Judge, ScoredOrder, is_spread
from augury.schedule.search.search_inputs import Floats, Terms, terms_of
from augury.schedule.search.tail_phase import cut_rest

GOOD_ENOUGH = 1.001
"""Factor on the bound below which cuts are not moved any more."""
SMALLER = 1.6
LEAST_SHARE = 1 / 400
"""Factor between message sizes that are tried with a parameter server, and the least size as a
share of the largest."""
MOST_TRIES = 120
BESIDE = 1.003
"""Factor by which steps from deadlines may exceed evaluated steps."""
_SLACK_BYTES = 1e-6
"""Slack against rounding, so that a size computed from bytes gives those bytes again."""


class Kind(NamedTuple):
    """Assumptions of one pass of the search."""

    share_behind: float
    """Share of the updates of later gradients that is done after a gradient has arrived."""
    slower: float
    """Factor by which the network may be slower than assumed, in gaps."""
    width: int
    """Number of ways to keep."""


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
        # Only a step without spread is compared with the bound.
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
        """Returns None if no cut of the rest can beat the best order so far."""
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
        """Yields message sizes to try. With a parameter server small messages are pulled while
        others are pushed. Once a size was best, only its neighbours are tried."""
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


class Laying:
    """Lays a line of bytes message by message, the most urgent bytes first."""

    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        self._left_bytes = terms.size_bytes.copy()
        self._runs: list[int] = []
        self._ends: list[int] = []
        self._cuts: list[float] = []
        self._laid_bytes = 0

    def left_ns(self) -> Floats:
        return (self._left_bytes * self.terms.ns_per_byte).astype(np.float64)

    def fill_gap(self, now_ns: float, room_ns: float, most_ns: float = inf) -> None:
        """Lays as many released bytes as fit, in equal messages of at most ``most_ns`` whose
        overheads use part of the room."""
        terms = self.terms
        there = np.flatnonzero((terms.release_ns <= now_ns) & (self._left_bytes > 0))
        there_ns = int(self._left_bytes[there].sum()) * terms.ns_per_byte
        with_overhead_ns = min(room_ns, there_ns) + terms.overhead_ns
        count = max(1, ceil(with_overhead_ns / (most_ns + terms.overhead_ns)))
        size_bytes = (with_overhead_ns / count - terms.overhead_ns) / terms.ns_per_byte
        before_bytes = self._laid_bytes
        self._lay(there, max(0.0, size_bytes * count) + _SLACK_BYTES)
        self._cuts += [before_bytes + size_bytes * nth for nth in range(1, count)]
        self._cuts.append(self._laid_bytes)

    def lay_rest(self, sizes_ns: Sequence[float]) -> None:
        """Lays all remaining bytes, in messages of these sizes, and the rest in one more."""
        ends_bytes = np.cumsum(sizes_ns) / self.terms.ns_per_byte + _SLACK_BYTES
        self._cuts += (self._laid_bytes + ends_bytes).tolist()
        self._lay(np.flatnonzero(self._left_bytes), inf)

    def line(self) -> tuple[Line, I8]:
        """Returns the line and its cuts."""
        runs = np.array(self._runs, np.int32)
        line = Line(runs, np.array(self._ends, np.int64), self.terms.item_bytes[runs])
        cuts = np.array([cut for cut in self._cuts if cut < self._laid_bytes], np.int64)
        return line, line.aligned(cuts)

    def _lay(self, places: I8, room_bytes: float) -> None:
        """Lays whole runs while they fit, then as many items of the next run as fit."""
        lefts, items = self._left_bytes[places], self.terms.item_bytes[places]
        ends = np.cumsum(lefts)
        num_whole = int(np.searchsorted(ends, room_bytes, side="right"))
        taken = lefts[:num_whole]
        if num_whole < len(places):
            before = int(ends[num_whole - 1]) if num_whole else 0
            item = int(items[num_whole])
            part = int(room_bytes - before) // item * item
            if part > 0:
                taken = np.append(taken, part)
        self._left_bytes[places[: len(taken)]] -= taken
        self._runs += places[: len(taken)].tolist()
        self._ends += (self._laid_bytes + np.cumsum(taken)).tolist()
        self._laid_bytes += int(taken.sum())
