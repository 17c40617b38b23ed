"""Leaves out of a found combination what hardly gains: each change is a risk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from augury.optimize.scene_space import PIECES, SceneSpace
from augury.predict.assess_policies import EQUAL_STEPS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from augury.optimize.search import Found
    from augury.optimize.space import Candidate, Evaluated, Objective

EQUAL_MODULES = 0.001
"""Relative gain below which a group of modules is left as it was recorded."""


def pruned(space: SceneSpace, objective: Objective, found: Found) -> Candidate:
    """Returns the simplest candidate that is about as fast as the best one and as feasible."""
    best = found.best
    allowed = objective.cost(found.evaluated[best])[0]
    known = dict(found.evaluated)
    reference_ns = known[best].step_ns

    def evaluated(candidate: Candidate) -> Evaluated | None:
        if candidate not in known:
            one = space.evaluate(candidate)
            if one is None:
                return None
            known[candidate] = one
        return known[candidate]

    for simpler, margin in _simpler(space, best):
        candidate = simpler(best)
        if candidate == best:
            continue
        one = evaluated(candidate)
        if one is None or objective.cost(one)[0] > allowed:
            continue
        slack_ns = known[best].step_ns * (1 + margin)
        if one.step_ns <= min(slack_ns, reference_ns * (1 + 2 * EQUAL_STEPS)):
            best = candidate
    return best


class _Without:
    """Leaves one decision as recorded."""

    def __init__(self, place: int) -> None:
        self._place = place

    def __call__(self, candidate: Candidate) -> Candidate:
        return (*candidate[: self._place], 0, *candidate[self._place + 1 :])


class _BucketsForPieces:
    """Exchanges ordered pieces for the list of bucket sizes compiled for the same compute."""

    def __init__(self, space: SceneSpace) -> None:
        self._space = space

    def __call__(self, candidate: Candidate) -> Candidate:
        if (
            not self._space.decisions
            or self._space.decisions[-1].name != PIECES
            or not candidate[-1]
        ):
            return candidate
        stock = [one for one in self._space.compiled(candidate) if not one[-1]]
        return stock[0] if stock else candidate


def _simpler(
    space: SceneSpace, best: Candidate
) -> Iterator[tuple[_Without | _BucketsForPieces, float]]:
    """Yields changes to simpler candidates, with the loss that each may cost: light ones first."""
    yield _BucketsForPieces(space), EQUAL_STEPS
    decisions = space.decisions
    chosen = [place for place, option in enumerate(best) if option]
    for place in sorted(chosen, key=lambda place: decisions[place].weight_ns):
        is_shared = sum(decisions[one].section is decisions[place].section for one in chosen) > 1
        yield _Without(place), EQUAL_MODULES if is_shared else EQUAL_STEPS
