"""The search over combinations, against all combinations of small trainings."""

from __future__ import annotations

import pytest

from augury.core.plan.plan import PlanSection
from augury.optimize.search import SearchOptions, search
from augury.optimize.space import Decision, Evaluated, Objective, exhaustive, is_allowed
from tests.optimize.small_spaces import Training, TrainingSpace

LEAST_SHARE = 0.95
MARGIN = 1.01


def near_optimum(seed: int, *, max_layers: int = 3, options: SearchOptions | None = None) -> bool:
    training = Training.random(seed, max_layers=max_layers)
    _, best = exhaustive(TrainingSpace(training))
    space = TrainingSpace(training)
    found = search(space, options=options)
    assert is_allowed(space.decisions, found.best)
    assert found.evaluated[found.best] == space.evaluate(found.best)
    return found.evaluated[found.best].step_ns <= best.step_ns * MARGIN


def test_it_is_within_1_pct_of_the_best_combination_on_small_trainings() -> None:
    near = [near_optimum(seed) for seed in range(40)]
    assert sum(near) >= LEAST_SHARE * len(near)


@pytest.mark.more
def test_it_is_within_1_pct_of_the_best_combination_on_200_small_trainings() -> None:
    near = [near_optimum(seed, max_layers=4) for seed in range(1_000, 1_200)]
    assert sum(near) >= LEAST_SHARE * len(near)


def test_a_search_without_estimates_is_as_near() -> None:
    near = [near_optimum(seed, options=SearchOptions(screen=False)) for seed in range(8)]
    assert sum(near) >= LEAST_SHARE * len(near)


def test_the_same_seed_gives_the_same_result() -> None:
    options = SearchOptions(seed=7)
    first, second = (search(TrainingSpace(Training.random(3)), options=options) for _ in range(2))
    assert first.best == second.best
    assert first.evaluated == second.evaluated


def test_a_memory_limit_is_met_by_the_fastest_candidate_within_it() -> None:
    for seed in range(3):
        training = Training.random(seed)
        space = TrainingSpace(training, recompute=True)
        start = space.evaluate((0,) * len(space.decisions))
        objective = Objective(memory_limit_bytes=round(start.peak_bytes * 0.7))
        _, best = exhaustive(TrainingSpace(training, recompute=True), objective)
        found = search(space, objective=objective)
        met = found.evaluated[found.best]
        assert objective.is_feasible(met) == objective.is_feasible(best)
        if objective.is_feasible(best):
            assert met.step_ns <= best.step_ns * MARGIN


def test_a_limit_that_nothing_meets_gives_the_candidate_nearest_to_it() -> None:
    space = TrainingSpace(Training.random(1), recompute=True)
    found = search(space, objective=Objective(memory_limit_bytes=1))
    nearest = min(one.peak_bytes for one in found.evaluated.values())
    assert found.evaluated[found.best].peak_bytes == nearest


class Clock:
    """A clock that advances by one second each time it is read."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        self.now_s += 1.0
        return self.now_s


def test_the_budget_ends_the_search_with_the_best_candidate_so_far() -> None:
    space = TrainingSpace(Training.random(5))
    found = search(space, options=SearchOptions(budget_s=12), clock=Clock())
    assert not found.is_complete
    assert found.evaluated[found.best].step_ns == min(
        one.step_ns for one in found.evaluated.values()
    )
    assert len(found.evaluated) < len(search(TrainingSpace(Training.random(5))).evaluated)


def test_without_a_budget_the_run_as_recorded_is_the_result() -> None:
    space = TrainingSpace(Training.random(5))
    found = search(space, options=SearchOptions(budget_s=0))
    assert found.best == (0,) * len(space.decisions)


def test_the_history_has_ever_better_steps() -> None:
    found = search(TrainingSpace(Training.random(8)))
    steps = [one.step_ns for one in found.history]
    assert len(steps) > 1
    assert steps == sorted(steps, reverse=True)
    assert steps[-1] == found.evaluated[found.best].step_ns


class JointSpace:
    """Compute that pays only with the order of gradients that suits it."""

    def __init__(self) -> None:
        self._num_orders = 1

    @property
    def decisions(self) -> list[Decision]:
        return [
            Decision(section=PlanSection.FUSION, name="module", num_options=2),
            Decision(section=PlanSection.COMMUNICATION, name="order", num_options=self._num_orders),
        ]

    def evaluate(self, candidate: tuple[int, ...]) -> Evaluated | None:
        steps: dict[tuple[int, ...], int]
        steps = {(0, 0): 100, (1, 0): 110, (0, 1): 105, (1, 1): 80}
        found = steps.get(candidate)
        return None if found is None else Evaluated(step_ns=found)

    def estimate(self, _candidates: object) -> None:
        return None

    def compiled(self, candidate: tuple[int, ...]) -> list[tuple[int, ...]]:
        """Finds the order for the fused module only."""
        if not candidate[0]:
            return []
        self._num_orders = 2
        return [(candidate[0], 1)]


def test_communication_is_compiled_for_changes_that_lose_by_themselves() -> None:
    found = search(JointSpace())
    assert found.best == (1, 1)


class TwoModules(JointSpace):
    """Modules that pay only together, with the order of gradients compiled for both."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[int, ...]] = []

    @property
    def decisions(self) -> list[Decision]:
        module, order = super().decisions
        return [module, module, order]

    def evaluate(self, candidate: tuple[int, ...]) -> Evaluated | None:
        self.seen.append(candidate)
        num_modules = sum(candidate[:2])
        return Evaluated(step_ns=80 if candidate == (1, 1, 1) else 100 + 10 * num_modules)

    def compiled(self, candidate: tuple[int, ...]) -> list[tuple[int, ...]]:
        """Finds the order for both modules only."""
        if candidate[:2] != (1, 1):
            return []
        self._num_orders = 2
        return [(1, 1, 1)]


def test_random_changes_begin_with_communication_compiled_for_them() -> None:
    found = search(TwoModules(), options=SearchOptions(num_restarts=20))
    assert found.best == (1, 1, 1)


def test_orders_compiled_for_the_recorded_run_are_evaluated_first() -> None:
    class Ordered(TwoModules):
        def compiled(self, candidate: tuple[int, ...]) -> list[tuple[int, ...]]:
            self._num_orders = 2
            return [(*candidate[:2], 1)]

    space = Ordered()
    search(space)
    assert space.seen[:2] == [(0, 0, 0), (0, 0, 1)]


def test_candidates_that_cannot_be_made_are_left_out() -> None:
    class Failing(JointSpace):
        def evaluate(self, candidate: tuple[int, ...]) -> Evaluated | None:
            return None if candidate == (1, 1) else super().evaluate(candidate)

    assert search(Failing()).best == (0, 0)
