"""Conditions under which another plan is made."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from augury.core.plan.plan import Plan, communication_of
from augury.core.plan.plan_spec import order_errors
from augury.runtime.meter import Meter, StepLog
from augury.runtime.replan import PAUSE_STEPS, Replanner, better_plan
from augury.schedule.evaluate import step_ns
from augury.schedule.search.candidates import piece_candidates
from tests.runtime.plans import plan_for, with_order

PLAN = plan_for({"a": 800_000, "b": 400_000, "c": 800_000})
SECTION = communication_of(PLAN)
PROBLEM = SECTION.problem
BAD = with_order(
    PLAN, pieces=tuple(replace(one, not_before_ns=9_000_000) for one in SECTION.order.pieces)
)
"""Waits for nothing: any other order is better."""


def log_of(plan: Plan, *, step: int = 1, slower: float = 1.0, stretch: float = 1.0) -> StepLog:
    """Pieces that follow each other on the link, slower by the given factor."""
    section = communication_of(plan)
    problem = section.problem
    now, issued, arrived = 0.0, [], []
    for piece in section.order.pieces:
        issued.append(max(0, int(now) - 1000))
        now += problem.network.overhead_ns
        now += slower * problem.network.ns_per_byte * piece.size_bytes
        arrived.append(int(now))
    return StepLog(
        step=step,
        issued_ns=issued,
        arrived_ns=arrived,
        expected_ns=(),
        released_ns=[round(stretch * gradient.release_ns) for gradient in problem.gradients],
        backward_ns=round(stretch * problem.backward_ns),
    )


def _meter(plan: Plan, slower: list[float]) -> Meter:
    """Every fourth step was observed."""
    section = communication_of(plan)
    num_gradients = len(section.problem.gradients)
    meter = Meter(num_pieces=len(section.order.pieces), num_gradients=num_gradients)
    meter.log += [log_of(plan, step=4 * (n + 1), slower=factor) for n, factor in enumerate(slower)]
    meter.step = 4 * len(slower) + 1
    return meter


def test_the_new_plan_fits_the_observed_conditions(capsys: pytest.CaptureFixture[str]) -> None:
    planner = Replanner(is_here=True)
    planner.watch(BAD)
    found = planner.look(_meter(BAD, [1.0, 3.0, 3.0]))
    assert found is not None
    assert found.plan is not None
    new, why = communication_of(found.plan), found.reason
    assert new.problem.network.ns_per_byte == pytest.approx(3.0, rel=0.01)
    assert not list(order_errors(new.order, new.problem))
    assert step_ns(new.problem, new.order) < step_ns(new.problem, communication_of(BAD).order)
    assert "the network takes 3 times as long as planned" in why
    assert "new plan with" in capsys.readouterr().err


def test_oscillating_conditions_make_one_plan() -> None:
    """The demo once made two in 60 steps: for 0.44 times the cost per byte, then for 2.1 times."""
    planner = Replanner(is_here=True)
    planner.watch(BAD)
    num_plans = 0
    for num_steps in range(2, 26):  # 100 steps
        turns = [0.44 if n // 4 % 2 == 0 else 2.1 for n in range(num_steps)]
        found = planner.look(_meter(BAD, turns))
        num_plans += found is not None and found.plan is not None
    assert num_plans == 1
    assert PAUSE_STEPS + 8 >= 4 * 25


def test_no_plan_is_made_if_none_is_better(capsys: pytest.CaptureFixture[str]) -> None:
    best = better_plan(BAD, PROBLEM)
    assert best is not None
    planner = Replanner(is_here=True)
    planner.watch(best)
    found = planner.look(_meter(best, [1.4, 1.4, 1.4]))
    assert found is not None
    assert found.plan is None
    assert "the network takes 1.4 times as long" in found.reason
    assert "no better order was found" in capsys.readouterr().err


def test_one_outlier_does_not_trigger_replanning() -> None:
    planner = Replanner(is_here=True)
    planner.watch(BAD)
    assert planner.look(_meter(BAD, [1.0, 3.0, 1.0, 1.0, 0.4, 1.0])) is None


def test_candidates_are_ranked_by_replay() -> None:
    """A family that replays much slower than it is evaluated is not chosen."""
    every = list(piece_candidates(PROBLEM, 3))
    assert len({one.family for one in every}) == len(every)
    best = min(every, key=lambda one: step_ns(PROBLEM, one.order))
    equal = {one.family for one in every if one.order.pieces == best.order.pieces}
    ratios = {one.family: 5.0 if one.family in equal else 1.0 for one in every}
    section = replace(communication_of(BAD), replay_ratios=ratios)
    lanes_1 = replace(BAD, num_ranks=3, communication=section)
    found = better_plan(lanes_1, PROBLEM)
    if found is not None:  # all candidates may be one order
        new = communication_of(found)
        assert new.family not in equal or len(equal) == len(every)
        assert new.order.lanes == 1


def test_a_search_does_not_block_training() -> None:
    """The search runs in a process of its own, and its outcome is polled later."""
    planner = Replanner()
    planner.watch(BAD)
    assert planner.look(_meter(BAD, [3.0, 3.0])) is None
    for _ in range(600):
        found = planner.look(_meter(BAD, [3.0, 3.0]))
        if found is not None:
            break
        time.sleep(0.1)
    assert found is not None
    assert found.plan is not None
    assert communication_of(found.plan).problem.network.ns_per_byte == pytest.approx(3.0, rel=0.01)
    planner.close()


def test_a_failed_search_disables_replanning(capsys: pytest.CaptureFixture[str]) -> None:
    planner = Replanner(is_here=True)
    planner.watch(with_order(BAD, policy="unknown"))
    assert planner.look(_meter(BAD, [3.0, 3.0])) is None
    assert planner.look(_meter(BAD, [3.0, 3.0])) is None
    assert capsys.readouterr().err.count("re-planning failed") == 1
