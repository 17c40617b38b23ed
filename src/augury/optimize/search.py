"""The search for the best candidate: steepest descent with restarts, until a budget ends.

Each round estimates all single changes of the best candidate, evaluates the most promising ones
exactly, and takes all that gain together where they still do. Where no single change gains,
communication compiled for the candidate is tried, then decisions in place of those that exclude
them, then pairs, then communication compiled for neighbours: a change of compute often pays only
with the order of gradients that suits it. Descents begin at the best changes under the run's own
communication, at the recorded run, at the communication compiled for it, and at random changes of
the best candidate, each with communication compiled for it. The same seed gives the same result,
unless the budget ends the search.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from augury.core.errors import UsageError
from augury.core.progress import Progress, silent
from augury.core.units import parse_time_ns
from augury.optimize.space import (
    Candidate,
    Evaluated,
    Objective,
    SearchSpace,
    is_allowed,
    repaired,
    start_of,
)

MAX_PAIRS = 400
"""Pairs of changes that one round estimates."""
NUM_COMPILED_NEIGHBOURS = 3
"""Neighbours of a local optimum for which communication is compiled."""
NUM_COMPILED_STARTS = 2
"""Orders compiled for the recorded run from which a descent begins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchOptions:
    """Effort and accelerators of a search. Without accelerators results are as good or better, and
    take longer: benchmarks switch them off one by one."""

    budget_s: float = 60.0
    seed: int = 0
    num_restarts: int = 4
    """Restarts in a row without a gain, after which the search ends."""
    num_checked: int = 8
    """Estimated candidates that are evaluated exactly, in each round."""
    screen: bool = True
    """Estimates candidates by sweeps in a fixed order before some are replayed."""
    coarsen: bool = True
    """Repeated modules share their decisions."""
    fold: bool = True
    """Identical ranks are replayed once."""
    partial: bool = True
    """Replays begin at the first changed operation."""


def parse_budget_s(budget: float | str) -> float:
    """Parses a time such as ``60s``; a number is seconds."""
    budget_s = parse_time_ns(budget) / 1e9 if isinstance(budget, str) else float(budget)
    if not 0 <= budget_s < math.inf:
        raise UsageError(f"{budget!r} is no budget of time", remedy="write it as 60s")
    return budget_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Progressed:
    """The best step at one time of the search."""

    elapsed_s: float
    num_candidates: int
    step_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The outcome of a search."""

    best: Candidate
    evaluated: dict[Candidate, Evaluated]
    """Candidates that were evaluated exactly."""
    num_estimated: int
    elapsed_s: float
    is_complete: bool
    """Whether the search ended before its budget."""
    history: list[Progressed] = field(default_factory=list)

    @property
    def num_candidates(self) -> int:
        return self.num_estimated + len(self.evaluated)


def search(
    space: SearchSpace,
    *,
    objective: Objective | None = None,
    options: SearchOptions | None = None,
    progress: Progress = silent,
    clock: Callable[[], float] = time.monotonic,
) -> Found:
    """Returns the best candidate found within the budget. The start is always evaluated."""
    return _Search(
        space, objective or Objective(), options or SearchOptions(), progress, clock
    ).found()


class _Search:
    def __init__(
        self,
        space: SearchSpace,
        objective: Objective,
        options: SearchOptions,
        progress: Progress,
        clock: Callable[[], float],
    ) -> None:
        self._space, self._objective, self._options = space, objective, options
        self._progress, self._clock = progress, clock
        self._random = random.Random(options.seed)  # noqa: S311
        self._evaluated: dict[Candidate, Evaluated] = {}
        self._failed: set[Candidate] = set()
        self._compiled: dict[Candidate, list[Candidate]] = {}
        self._num_estimated = 0
        self._history: list[Progressed] = []
        self._began_s = clock()
        self._best = start_of(space)
        self._num_options: list[int] | None = None
        """Options of each decision that the present descent may take; None: all of them."""

    def found(self) -> Found:
        start = self._best
        if not self._check([start]):
            raise ValueError("the start of the search cannot be evaluated")
        with self._progress("searching combinations of changes"):
            of_run = [decision.num_options for decision in self._space.decisions]
            # Compiled before the first descent, so that a search that is out of time has tried it.
            ordered = self._by_cost(self._compiled_for(start))[:NUM_COMPILED_STARTS]
            self._num_options = of_run
            with_own_order = self._descend(start)
            self._num_options = None
            for one in (with_own_order, start, *ordered):
                self._descend(one)
        fruitless = 0
        while fruitless < self._options.num_restarts and not self._is_over():
            before = self._cost(self._best)
            with self._progress(f"searching on: {self._num_candidates:,} candidates"):
                self._descend(self._with_own_order(self._perturbed(self._best)))
            fruitless = 0 if self._cost(self._best) < before else fruitless + 1
        return Found(
            best=self._best,
            evaluated=self._evaluated,
            num_estimated=self._num_estimated,
            elapsed_s=self._clock() - self._began_s,
            is_complete=not self._is_over(),
            history=self._history,
        )

    @property
    def _num_candidates(self) -> int:
        return self._num_estimated + len(self._evaluated)

    def _descend(self, candidate: Candidate) -> Candidate:
        """Returns the local optimum."""
        if not self._check([candidate]):
            return candidate
        sources: tuple[Callable[[Candidate], list[Candidate]], ...] = (
            self._singles,
            self._compiled_for,
            self._opened,
            self._pairs,
            self._compiled_for_neighbours,
        )
        if self._num_options is not None:
            sources = (self._singles, self._opened, self._pairs)
        gained = True
        while gained and not self._is_over():
            gained = False
            for source in sources:
                better = self._better(candidate, source(candidate))
                if better:
                    candidate = self._merged(candidate, better)
                    gained = True
                    break
                if self._is_over():
                    return candidate
        return candidate

    def _better(self, candidate: Candidate, moves: Sequence[Candidate]) -> list[Candidate]:
        """The moves that gain, best first."""
        limit = self._cost(candidate)
        gaining = self._by_cost(self._promising(moves))
        return [one for one in gaining if self._cost(one) < limit]

    def _by_cost(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """The candidates that can be made, best first."""
        return sorted(self._check(candidates), key=lambda one: (self._cost(one), one))

    def _merged(self, candidate: Candidate, better: Sequence[Candidate]) -> Candidate:
        """The best move, with the changes of the others for as long as they gain."""
        best = better[0]
        decisions = self._space.decisions
        for other in better[1:]:
            if self._is_over():
                break
            places = [i for i, option in enumerate(other) if option != candidate[i]]
            options = list(best)
            for place in places:
                options[place] = other[place]
            both = repaired(decisions, tuple(options), places)
            if both != best and is_allowed(decisions, both) and self._check([both]):
                best = min(best, both, key=lambda one: (self._cost(one), one))
        return best

    def _singles(self, candidate: Candidate) -> list[Candidate]:
        """All changes of one decision, those of heavy decisions first."""
        found = []
        for place in self._by_weight():
            for option in self._options_of(place):
                if option != candidate[place]:
                    found.append(self._with(candidate, {place: option}))
        return self._distinct(found, candidate)

    def _options_of(self, place: int) -> range:
        if self._num_options is not None:
            return range(self._num_options[place])
        return range(self._space.decisions[place].num_options)

    def _pairs(self, candidate: Candidate) -> list[Candidate]:
        """Changes of two decisions: all of them if they are few, otherwise a random part, in which
        heavy decisions are more likely."""
        singles = [
            (place, option)
            for place in self._by_weight()
            for option in self._options_of(place)
            if option != candidate[place]
        ]
        pairs = [(a, b) for a, b in combinations(singles, 2) if a[0] != b[0]]
        if len(pairs) > MAX_PAIRS:
            half = MAX_PAIRS // 2
            pairs = [*pairs[:half], *self._random.sample(pairs[half:], MAX_PAIRS - half)]
        return self._distinct((self._with(candidate, dict(pair)) for pair in pairs), candidate)

    def _opened(self, candidate: Candidate) -> list[Candidate]:
        """Takes all decisions that a taken one excludes in its place, such as the modules inside
        of a module: one by one they would lose to it. Heavy ones first, then light ones first."""
        decisions = self._space.decisions
        found = []
        for place, option in enumerate(candidate):
            inside = [one for one in self._by_weight() if one in decisions[place].excludes]
            if not option or not inside:
                continue
            for order in (inside, inside[::-1]):
                opened = self._with(candidate, {place: 0})
                for one in order:
                    taken = (*opened[:one], decisions[one].num_options - 1, *opened[one + 1 :])
                    if taken[one] and is_allowed(decisions, taken):
                        opened = taken
                found.append(opened)
        return self._distinct(found, candidate)

    def _compiled_for(self, candidate: Candidate) -> list[Candidate]:
        if candidate not in self._compiled:
            if self._is_over():
                return []
            self._compiled[candidate] = self._space.compiled(candidate)
        return self._distinct(self._compiled[candidate], candidate)

    def _with_own_order(self, candidate: Candidate) -> Candidate:
        """The candidate with communication compiled for it, where that gains. Under an order for
        other compute, a descent would only undo the change."""
        ordered = self._by_cost([candidate, *self._compiled_for(candidate)])
        return ordered[0] if ordered else candidate

    def _compiled_for_neighbours(self, candidate: Candidate) -> list[Candidate]:
        known = [one for one in self._singles(candidate) if one in self._evaluated]
        known.sort(key=lambda one: (self._cost(one), one))
        found = []
        for one in known[:NUM_COMPILED_NEIGHBOURS]:
            found += self._compiled_for(one)
        return self._distinct(found, candidate)

    def _with(self, candidate: Candidate, options: dict[int, int]) -> Candidate:
        changed = tuple(options.get(place, option) for place, option in enumerate(candidate))
        return repaired(self._space.decisions, changed, list(options))

    def _distinct(self, found: Iterable[Candidate], candidate: Candidate) -> list[Candidate]:
        decisions = self._space.decisions
        return [
            one for one in dict.fromkeys(found) if one != candidate and is_allowed(decisions, one)
        ]

    def _by_weight(self) -> list[int]:
        decisions = self._space.decisions
        return sorted(range(len(decisions)), key=lambda place: -decisions[place].weight_ns)

    def _perturbed(self, candidate: Candidate) -> Candidate:
        decisions = self._space.decisions
        places = [place for place, decision in enumerate(decisions) if decision.num_options > 1]
        if not places:
            return candidate
        weights = [decisions[place].weight_ns + 1 for place in places]
        for _ in range(self._random.randint(2, 3)):
            place = self._random.choices(places, weights)[0]
            candidate = self._with(
                candidate, {place: self._random.randrange(decisions[place].num_options)}
            )
        return candidate

    def _promising(self, moves: Sequence[Candidate]) -> list[Candidate]:
        """The moves with the best estimates; without estimates, all of them."""
        known = [one for one in moves if one in self._evaluated]
        fresh = [one for one in moves if one not in self._evaluated and one not in self._failed]
        if not self._options.screen or len(fresh) <= self._options.num_checked:
            return [*known, *fresh]
        estimates = self._space.estimate(fresh)
        if estimates is None:
            return [*known, *fresh]
        self._num_estimated += len(fresh)
        costs = [self._objective.cost(one) for one in estimates]
        order = sorted(range(len(fresh)), key=lambda place: (costs[place], place))
        return [*known, *(fresh[place] for place in order[: self._options.num_checked])]

    def _check(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Evaluates candidates; returns those that can be made."""
        done = []
        for candidate in candidates:
            if candidate not in self._evaluated and candidate not in self._failed:
                if self._evaluated and self._is_over():
                    break
                self._evaluate(candidate)
            if candidate in self._evaluated:
                done.append(candidate)
        return done

    def _evaluate(self, candidate: Candidate) -> None:
        found = self._space.evaluate(candidate)
        if found is None:
            self._failed.add(candidate)
            return
        self._evaluated[candidate] = found
        if not self._history or self._cost(candidate) < self._cost(self._best):
            self._best = candidate
            elapsed_s = self._clock() - self._began_s
            self._history.append(
                Progressed(
                    elapsed_s=elapsed_s, num_candidates=self._num_candidates, step_ns=found.step_ns
                )
            )

    def _cost(self, candidate: Candidate) -> tuple[int, int]:
        return self._objective.cost(self._evaluated[candidate])

    def _is_over(self) -> bool:
        return self._clock() - self._began_s >= self._options.budget_s
