"""The space that a search explores: decisions, candidates, and what evaluates them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Protocol

from augury.core.plan.plan import PlanSection

Candidate = tuple[int, ...]
"""The option taken of each decision; option 0 leaves the run as it was recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """One decision of a candidate."""

    section: PlanSection
    name: str
    num_options: int
    weight_ns: int = 0
    """Time on the critical path that the decision can change. Heavy decisions are tried first."""
    excludes: tuple[int, ...] = ()
    """Decisions that are at option 0 wherever this one is not: a module around another one, or
    sections that cannot be applied together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluated:
    """A candidate's step and its memory."""

    step_ns: int
    peak_bytes: int = 0
    """Peak memory of the rank that holds most; 0 where it does not matter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """Candidates over the limit lose to all others; among them the one nearest to it wins."""

    memory_limit_bytes: int | None = None

    def is_feasible(self, found: Evaluated) -> bool:
        return self._excess_bytes(found) == 0

    def cost(self, found: Evaluated) -> tuple[int, int]:
        """Smaller is better."""
        return self._excess_bytes(found), found.step_ns

    def _excess_bytes(self, found: Evaluated) -> int:
        if self.memory_limit_bytes is None:
            return 0
        return max(0, found.peak_bytes - self.memory_limit_bytes)


class SearchSpace(Protocol):
    """Decisions, and the evaluation of candidates."""

    @property
    def decisions(self) -> Sequence[Decision]:
        """The number of options may grow when candidates are compiled, the decisions stay."""

    def evaluate(self, candidate: Candidate, /) -> Evaluated | None:
        """Evaluates a candidate exactly; None where it cannot be made."""

    def estimate(self, candidates: Sequence[Candidate], /) -> list[Evaluated] | None:
        """Estimates candidates quickly; None where they can only be evaluated."""

    def compiled(self, candidate: Candidate, /) -> list[Candidate]:
        """Compiles communication for a candidate's compute, and returns the candidate with each of
        the orders found: new options of the decision of communication."""


def start_of(space: SearchSpace) -> Candidate:
    """Returns the run as recorded."""
    return (0,) * len(space.decisions)


def repaired(decisions: Sequence[Decision], candidate: Candidate, keep: Sequence[int]) -> Candidate:
    """Returns the candidate without the decisions that the ``keep`` ones exclude."""
    options = list(candidate)
    for place in keep:
        if options[place]:
            for other in decisions[place].excludes:
                options[other] = 0
    return tuple(options)


def is_allowed(decisions: Sequence[Decision], candidate: Candidate) -> bool:
    """Whether no decision excludes another one that the candidate takes."""
    return all(
        not (option and any(candidate[other] for other in decision.excludes))
        for decision, option in zip(decisions, candidate, strict=True)
    )


def every_candidate(space: SearchSpace) -> Iterator[Candidate]:
    """Yields every allowed combination of the options known so far."""
    decisions = space.decisions
    for candidate in product(*(range(decision.num_options) for decision in decisions)):
        if is_allowed(decisions, candidate):
            yield candidate


def exhaustive(
    space: SearchSpace, objective: Objective | None = None
) -> tuple[Candidate, Evaluated]:
    """Returns the best of all candidates, with communication compiled for each of them: the
    yardstick of the search, for spaces of a few thousand candidates."""
    objective = objective or Objective()
    found: dict[Candidate, Evaluated] = {}
    seen: set[Candidate] = set()
    for candidate in list(every_candidate(space)):
        for one in (candidate, *space.compiled(candidate)):
            if one in seen:
                continue
            seen.add(one)
            evaluated = space.evaluate(one)
            if evaluated is not None:
                found[one] = evaluated
    best = min(found, key=lambda one: (objective.cost(found[one]), one))
    return best, found[best]
