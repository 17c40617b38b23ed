"""Optimizations of recorded runs: joint decisions, memory limits, reasons, and what is left out."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest

from augury.core.errors import InfeasibleError, InputError, UsageError
from augury.core.plan.plan import PlanSection
from augury.core.plan.plan_spec import verify_plan
from augury.core.trace.trace_file import write_trace
from augury.optimize.optimize_run import (
    MEMORY_MARGIN,
    Optimized,
    Wanted,
    optimize,
    optimize_run,
)
from augury.optimize.scene_space import SceneSpace
from augury.optimize.search import SearchOptions, search
from augury.optimize.section_decisions import Numerics
from augury.predict.opened_run import OpenedRun, open_source
from augury.predict.plan_prediction import open_planned, predict_plan
from augury.report.optimize import render_optimization
from tests.build.recorded_runs import ddp_run
from tests.optimize.timed_runs import RUNS, timed

EVERY = frozenset(Numerics)
QUICK = SearchOptions(budget_s=20, num_restarts=1)
FASTER = {"compiled": 0.5, "bfloat16": 0.7, "compiled+bfloat16": 0.4}


def exposed(folder: Path) -> OpenedRun:
    """A run with communication that other buckets would hide."""
    folder.mkdir()
    run = ddp_run(
        num_steps=5,
        buckets=((0, 1, 2, 3),),
        ns_per_byte=1.0,
        vary={(0, 1): 1.02, (1, 3): 1.01},
    )
    write_trace(run.trace(), folder)
    return open_source(folder)


def sections(found: Optimized) -> dict[str, float]:
    return {one.section: one.share_pct for one in found.result.sections}


def test_communication_that_pays_becomes_a_plan_with_its_prediction(tmp_path: Path) -> None:
    run = exposed(tmp_path / "run")
    found = optimize_run(run, Wanted(), QUICK)
    assert found.result.can_pay
    assert sections(found).keys() == {"communication"}
    assert found.plan is not None
    verify_plan(found.plan)
    assert found.plan.run_digest == run.digest
    prediction = found.plan.prediction
    assert prediction is not None
    assert prediction.step_ns == found.result.predicted_step_ns < prediction.baseline_ns
    low, high = prediction.interval_ns
    assert low < prediction.step_ns < high
    assert prediction.bound_ns <= prediction.step_ns
    assert prediction.without_ns == {PlanSection.COMMUNICATION: prediction.baseline_ns}


def test_the_plan_predicts_the_step_that_the_search_found(tmp_path: Path) -> None:
    run = open_source(timed("buckets-3", tmp_path / "run", FASTER))
    found = optimize_run(run, Wanted(allowed=frozenset({Numerics.ROUNDING})), QUICK)
    assert found.plan is not None
    again = predict_plan(open_planned(run), found.plan)
    assert again.timeline.step_ns == found.result.predicted_step_ns
    assert {name.value: ns for name, ns in again.without_ns.items()} == {
        one.section: one.without_ns for one in found.result.sections
    }


def test_compiled_modules_need_leave_to_round(tmp_path: Path) -> None:
    run = open_source(timed("buckets-3", tmp_path / "run", FASTER))
    default = optimize_run(run, Wanted(), QUICK)
    assert "fusion" not in sections(default)
    left_out = {one.section: one for one in default.result.tried}
    assert "--allow rounding" in left_out["fusion"].reason
    assert left_out["fusion"].gain_pct is not None
    assert left_out["fusion"].gain_pct > 0
    allowed = optimize_run(run, Wanted(allowed=frozenset({Numerics.ROUNDING})), QUICK)
    assert sections(allowed)["fusion"] > 0
    assert allowed.result.predicted_step_ns < default.result.predicted_step_ns


def test_modules_that_cannot_be_compiled_are_left_out(tmp_path: Path) -> None:
    reason = "it has a graph break"
    run = open_source(timed("buckets-3", tmp_path / "run", FASTER, block=2, trouble=reason))
    allowed = frozenset({Numerics.ROUNDING})
    only = frozenset({PlanSection.FUSION})
    found = optimize_run(run, Wanted(allowed=allowed, only=only), QUICK)
    assert found.plan is not None
    assert found.plan.fusion is not None
    troubled = run.trace.ranks[0].module_timings[1]
    assert troubled.trouble == reason
    assert troubled.modules[0] not in found.plan.fusion.modules


def test_gains_smaller_than_their_error_are_left_out_with_a_hint_to_measure() -> None:
    run = open_source(RUNS / "buckets-3")
    found = optimize_run(run, Wanted(allowed=EVERY), QUICK)
    assert "fusion" not in sections(found)
    reasons = {one.section: one.reason for one in found.result.tried}
    assert "--calibrate" in reasons["fusion"]


def test_a_joint_search_is_no_worse_than_any_section_alone(tmp_path: Path) -> None:
    run = open_source(timed("buckets-3", tmp_path / "run", FASTER, block=2))
    planned = open_planned(run)
    names = (PlanSection.FUSION, PlanSection.PRECISION, PlanSection.COMMUNICATION)
    joint = SceneSpace(planned, names, options=QUICK)
    found = search(joint, options=QUICK)
    best_ns = found.evaluated[found.best].step_ns
    alone = []
    for name in names:
        space = SceneSpace(planned, {name}, options=QUICK)
        own = search(space, options=QUICK)
        alone.append(own.evaluated[own.best].step_ns)
    assert best_ns <= min(alone)


@pytest.mark.more
def test_accelerators_change_the_time_of_a_search_only(tmp_path: Path) -> None:
    planned = open_planned(open_source(timed("buckets-3", tmp_path / "run", FASTER, block=2)))
    names = (PlanSection.FUSION, PlanSection.COMMUNICATION)
    steps = []
    for options in (
        QUICK,
        replace(QUICK, screen=False),
        replace(QUICK, partial=False),
        replace(QUICK, fold=False),
        replace(QUICK, coarsen=False),
    ):
        found = search(SceneSpace(planned, names, options=options), options=options)
        steps.append(found.evaluated[found.best].step_ns)
    assert max(steps) <= 1.01 * min(steps)


def test_estimates_are_near_exact_steps(tmp_path: Path) -> None:
    planned = open_planned(open_source(timed("buckets-3", tmp_path / "run", FASTER)))
    space = SceneSpace(planned, (PlanSection.FUSION,), options=QUICK)
    number = len(space.decisions)
    assert number > 2
    every = [tuple(int(at <= place) for at in range(number)) for place in range(number)]
    every = [one for one in every if space.evaluate(one) is not None]
    estimates = space.estimate(every)
    if estimates is None:
        pytest.skip("estimates need the kernel")
    for one, estimate in zip(every, estimates, strict=True):
        exact = space.evaluate(one)
        assert exact is not None
        assert estimate.step_ns == pytest.approx(exact.step_ns, rel=0.05)


def peak_of(run: OpenedRun) -> int:
    planned = open_planned(run)
    return max(one.size_bytes for one in planned.baseline.peak_memory)


def test_a_limit_is_met_by_recomputed_modules(tmp_path: Path) -> None:
    run = open_source(timed("conv-2", tmp_path / "run", FASTER, block=5))
    whole = peak_of(run)
    free = optimize_run(run, Wanted(), QUICK)
    assert "recompute" not in sections(free)
    found = optimize_run(run, Wanted(memory_limit_bytes=whole), QUICK)
    assert "recompute" in sections(found)
    assert found.result.can_pay
    assert found.result.peak_bytes is not None
    assert found.result.memory_target_bytes == round((1 - MEMORY_MARGIN) * whole)
    assert found.result.peak_bytes <= found.result.memory_target_bytes
    assert free.plan is None or free.plan.memory_limit_bytes is None
    assert found.plan is not None
    assert found.plan.memory_limit_bytes == whole
    text = StringIO()
    render_optimization(found.result, text, name="run")
    assert "predicted peaks may be 5.0 % off" in " ".join(text.getvalue().split())


def test_gains_below_the_noise_of_the_run_are_left_out(tmp_path: Path) -> None:
    """Autocast gains several times the error of its prediction, and less than the noise."""
    run = open_source(timed("mlp-2", tmp_path / "run", {"bfloat16": 0.3}))
    found = optimize_run(run, Wanted(allowed=frozenset({Numerics.PRECISION})), QUICK)
    assert found.result.can_pay
    assert sections(found).keys() == {"communication"}
    assert sections(found)["communication"] > found.result.noise_pct
    (reason,) = (one.reason for one in found.result.tried if one.section == "precision")
    assert f"less than can be measured ({found.result.noise_pct:.1f} %)" in reason


def test_a_limit_that_is_met_already_changes_nothing(tmp_path: Path) -> None:
    run = open_source(timed("conv-2", tmp_path / "run", FASTER, block=5))
    found = optimize_run(run, Wanted(memory_limit_bytes=2 * peak_of(run)), QUICK)
    assert found.plan is None or found.plan.memory_limit_bytes is None
    assert sections(found) == sections(optimize_run(run, Wanted(), QUICK))


def test_a_limit_that_no_plan_meets_names_what_holds_memory_and_the_nearest_plan() -> None:
    run = open_source(RUNS / "mlp-2")
    with pytest.raises(InfeasibleError) as caught:
        optimize_run(run, Wanted(memory_limit_bytes=100_000), QUICK)
    error = caught.value
    assert error.exit_code == 4
    assert "100 kB" in error.cause
    assert "parameter" in error.cause
    assert "is met by" in error.remedy
    assert isinstance(error.result, dict)
    assert error.result["nearest_peak_bytes"] > 100_000


def test_sections_that_change_numbers_cannot_be_chosen_without_leave() -> None:
    run = open_source(RUNS / "mlp-2")
    with pytest.raises(UsageError, match="changes the numbers"):
        optimize_run(run, Wanted(only=frozenset({PlanSection.PRECISION})), QUICK)


def test_a_run_that_followed_a_plan_is_refused() -> None:
    with pytest.raises(InputError, match="followed a plan"):
        optimize_run(open_source(RUNS / "pieces-2"), Wanted(), QUICK)


def test_only_named_sections_are_searched_and_explained(tmp_path: Path) -> None:
    only = frozenset({PlanSection.LOADER})
    found = optimize_run(exposed(tmp_path / "run"), Wanted(only=only), QUICK)
    assert not found.result.sections
    assert [one.section for one in found.result.tried] == ["loader"]
    assert "does not apply" in found.result.tried[0].reason


def test_several_starts_give_the_best_of_their_plans(tmp_path: Path) -> None:
    run = exposed(tmp_path / "run")
    several = optimize(run, starts=2, budget=20, engine="serial")
    assert several.result.predicted_step_ns <= optimize(run, budget=20).result.predicted_step_ns


@pytest.mark.more
def test_starts_run_in_processes(tmp_path: Path) -> None:
    run = exposed(tmp_path / "run")
    several = optimize(run, starts=2, budget=20, engine="processes", jobs=2)
    assert several.result.predicted_step_ns <= optimize(run, budget=20).result.predicted_step_ns
