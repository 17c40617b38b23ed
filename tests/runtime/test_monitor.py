"""What completions tell, and when that asks for another plan."""

from __future__ import annotations

from dataclasses import replace

import pytest

from augury.core.plan import Plan
from augury.runtime.meter import Meter, StepLog
from augury.runtime.monitor import Drift, observe
from augury.runtime.replan import Replanner
from tests.runtime.plans import plan_for

PLAN = plan_for({"a": 80_000, "b": 40_000})


def _log(plan: Plan, *, step: int = 1, slower: float = 1.0, backward_ns: int = 200_000) -> StepLog:
    """Two pieces under way at any time, which share the link."""
    network = plan.problem.network
    now, issued, arrived = 0.0, [], []
    for piece in plan.order.pieces:
        issued.append(max(0, int(now) - 1000))
        now += network.overhead_ns + slower * network.ns_per_byte * piece.size_bytes
        arrived.append(int(now))
    return StepLog(
        step=step,
        issued_ns=issued,
        arrived_ns=arrived,
        expected_ns=(),
        released_ns=[backward_ns, backward_ns // 2],
        backward_ns=backward_ns,
    )


@pytest.mark.parametrize("slower", [0.5, 1.0, 3.0])
def test_the_rate_is_seen_through_pieces_that_overlap(slower: float) -> None:
    seen = observe(_log(PLAN, slower=slower), PLAN)
    assert seen.ns_per_byte == pytest.approx(slower * PLAN.problem.network.ns_per_byte, rel=0.01)


def test_pieces_that_nobody_saw_tell_nothing() -> None:
    log = replace(_log(PLAN), arrived_ns=[-1] * 4)
    assert observe(log, PLAN).ns_per_byte is None


def test_no_drift_while_things_are_as_planned() -> None:
    drift = Drift(PLAN)
    for _ in range(10):
        drift.note(observe(_log(PLAN, slower=1.2), PLAN))
    assert drift.changed_problem() is None


def test_one_odd_step_is_no_drift() -> None:
    drift = Drift(PLAN)
    for slower in (1.0, 2.0, 1.0, 1.0):
        drift.note(observe(_log(PLAN, slower=slower), PLAN))
        assert drift.changed_problem() is None


def test_half_the_rate_is_noticed_in_the_second_step() -> None:
    drift = Drift(PLAN)
    for slower in (1.0, 2.0, 2.0):
        drift.note(observe(_log(PLAN, slower=slower), PLAN))
    problem = drift.changed_problem()
    assert problem is not None
    assert problem.network.ns_per_byte == pytest.approx(1.75, rel=0.01)
    assert problem.backward_ns == 200_000
    assert "the network takes" in drift.why


def test_a_longer_backward_moves_releases_and_needs() -> None:
    drift = Drift(PLAN)
    for _ in range(3):
        drift.note(observe(_log(PLAN, backward_ns=400_000), PLAN))
    problem = drift.changed_problem()
    assert problem is not None
    assert problem.backward_ns == 400_000
    assert [gradient.release_ns for gradient in problem.gradients] == [400_000, 200_000]
    assert [gradient.need_ns for gradient in problem.gradients] == [0, 100_000]
    assert problem.forward_ns == 200_000


def test_a_plan_is_made_anew_from_what_was_seen(capsys: pytest.CaptureFixture[str]) -> None:
    plan = replace(PLAN, order=replace(PLAN.order, policy="p3"))
    meter = Meter(num_pieces=4, num_gradients=2, step=20)
    planner = Replanner(plan, replace(meter, step=0))
    planner._meter.log += [_log(plan, step=step, slower=3.0) for step in (4, 8)]
    planner._meter.step = 9
    new = planner.new_plan()
    assert new is not None
    assert new.problem.network.ns_per_byte == pytest.approx(3.0, rel=0.01)
    assert new.order.policy == "p3"
    assert planner.size_bytes > 0
    assert "planned anew: the network takes 3 times as long" in capsys.readouterr().err
    assert Replanner(plan, planner._meter).new_plan() is None
