"""Estimates of network and backward from completions, and when they make another problem."""

from __future__ import annotations

from dataclasses import replace

import pytest

from augury.core.plan.plan import communication_of
from augury.runtime.monitor import LOOK_BACK_STEPS, Drift, observe
from tests.runtime.plans import plan_for
from tests.runtime.test_replan import log_of

PLAN = plan_for({"a": 80_000, "b": 40_000})
SECTION = communication_of(PLAN)


@pytest.mark.parametrize("slower", [0.5, 1.0, 3.0])
def test_the_rate_is_estimated_from_overlapping_pieces(slower: float) -> None:
    seen = observe(log_of(PLAN, slower=slower), SECTION)
    assert seen.ns_per_byte == pytest.approx(slower * SECTION.problem.network.ns_per_byte, rel=0.01)


def test_unobserved_pieces_give_no_estimate() -> None:
    log = replace(log_of(PLAN), arrived_ns=[-1] * 4)
    assert observe(log, SECTION).ns_per_byte is None


def _drift(*logs: dict[str, float]) -> Drift:
    drift = Drift(SECTION.problem)
    for options in logs:
        drift.note(observe(log_of(PLAN, **options), SECTION))
    return drift


def test_no_drift_while_conditions_are_as_planned() -> None:
    assert _drift(*[{"slower": 1.2}] * 10).changed_problem() is None


def test_symmetric_noise_is_no_drift() -> None:
    assert _drift({"slower": 0.4}, {"slower": 2.1}).changed_problem() is None


def test_half_the_rate_is_detected_in_the_second_step() -> None:
    drift = _drift({"slower": 1.0}, {"slower": 2.0})
    assert drift.changed_problem() is None
    drift.note(observe(log_of(PLAN, slower=2.0), SECTION))
    problem = drift.changed_problem()
    assert problem is not None
    assert problem.network.ns_per_byte == pytest.approx(2.0, rel=0.01)
    assert problem.backward_ns == 200_000
    assert "the network takes" in drift.why


def test_a_longer_backward_moves_releases_and_needs() -> None:
    problem = _drift(*[{"stretch": 2.0}] * 2).changed_problem()
    assert problem is not None
    assert problem.backward_ns == 400_000
    assert [gradient.release_ns for gradient in problem.gradients] == [400_000, 200_000]
    assert [gradient.need_ns for gradient in problem.gradients] == [0, 100_000]
    assert problem.forward_ns == 200_000


def test_a_longer_backward_needs_a_network_estimate_first() -> None:
    """A late rank observes no rate: a search with the planned rate would find nothing."""
    late = replace(log_of(PLAN, stretch=2.0), arrived_ns=[-1] * 4)
    drift = _drift()
    for _ in range(3):
        drift.note(observe(late, SECTION))
        assert drift.changed_problem() is None
    for _ in range(2):
        drift.note(observe(log_of(PLAN, stretch=2.0, slower=3.0), SECTION))
    problem = drift.changed_problem()
    assert problem is not None
    assert problem.network.ns_per_byte == pytest.approx(3.0, rel=0.01)


def test_a_longer_backward_is_detected_without_a_network_estimate() -> None:
    late = replace(log_of(PLAN, stretch=2.0), arrived_ns=[-1] * 4)
    drift = _drift()
    for _ in range(LOOK_BACK_STEPS):
        assert drift.changed_problem() is None
        drift.note(observe(late, SECTION))
    problem = drift.changed_problem()
    assert problem is not None
    assert problem.network == SECTION.problem.network
    assert problem.backward_ns == 400_000
