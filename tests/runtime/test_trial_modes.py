"""A trial compares stock, the whole plan, and the plan without each of its parts."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from augury.core.plan.plan import Plan, PlanPrediction, PlanSection
from augury.core.plan.plan_board import board
from augury.core.plan.plan_status import ModeTime, PlanStatus, TrainingMode, TrialResult
from augury.core.plan.sections import (
    FusionSection,
    LoaderSection,
    PrecisionSection,
    RecomputeSection,
    ThreadsSection,
)
from augury.runtime.plan_decision import ControlMessage, PlanDecision
from augury.runtime.plan_reports import note_applied, note_refusal, trial_summary
from augury.runtime.trial import TrialRules
from augury.runtime.trial_modes import STOCK, StepMode, left_out_first, mode_names, whole_mode
from tests.runtime.plans import plan_for

COMMUNICATION, FUSION, THREADS = (
    PlanSection.COMMUNICATION,
    PlanSection.FUSION,
    PlanSection.THREADS,
)
RECOMPUTE, PRECISION, LOADER = PlanSection.RECOMPUTE, PlanSection.PRECISION, PlanSection.LOADER
CONTENTS = {
    FUSION: FusionSection(modules=("a",)),
    RECOMPUTE: RecomputeSection(modules=("b",)),
    PRECISION: PrecisionSection(),
    LOADER: LoaderSection(num_workers=2),
    THREADS: ThreadsSection(num_threads=2),
}


@pytest.fixture(autouse=True)
def _clean_board() -> None:
    board.status = None
    board.is_trial_due = False


def _plan(*names: PlanSection, has_pieces: bool = False, **without_ns: int) -> Plan:
    plan = plan_for({"weight": 64})
    applied = (*([COMMUNICATION] if has_pieces else []), *names)
    return replace(
        plan,
        communication=plan.communication if has_pieces else None,
        applied=applied,
        prediction=PlanPrediction(
            baseline_ns=100,
            step_ns=50,
            interval_ns=(40, 60),
            bound_ns=0,
            without_ns={PlanSection(name): ns for name, ns in without_ns.items()},
        ),
        **{name.value: CONTENTS[name] for name in names},
    )


def _decision(plan: Plan, refused: dict[PlanSection, str] | None = None) -> PlanDecision:
    decision = PlanDecision(1, TrialRules(), replan=False, searches_here=False)
    decision.take(plan, from_step=1, can_change_buckets=True, refused=refused)
    return decision


def _verdict(decision: PlanDecision, gains_pct: list[float]) -> PlanStatus:
    """Ends the trial with these gains of the modes after stock."""
    trial = decision.trial
    assert trial is not None
    times = [
        ModeTime(
            mode=mode.exchange,
            sections=[*mode.sections],
            num_blocks=4,
            step_ns=100,
            gain_pct=gain_pct,
            interval_pct=(gain_pct - 1, gain_pct + 1),
        )
        for mode, gain_pct in zip(trial.modes, [0.0, *gains_pct], strict=True)
    ]
    best = max(times, key=lambda one: one.gain_pct)
    verdict = TrialResult(
        first_step=1,
        last_step=40,
        is_decided=True,
        winner=best.mode,
        sections=best.sections,
        times=times,
    )
    content = msgspec.json.encode(ControlMessage(verdict=verdict))
    assert decision.receive(content, from_step=50) is None
    assert board.status is not None
    return board.status


def _applied(status: PlanStatus) -> set[PlanSection]:
    return {one.section for one in status.sections if one.is_applied}


def test_a_plan_of_two_parts_is_compared_with_each_of_them() -> None:
    decision = _decision(_plan(THREADS, has_pieces=True))
    assert decision.trial is not None
    assert decision.trial.modes == (
        STOCK,
        StepMode(exchange=TrainingMode.PLANNED, sections=(THREADS,)),
        StepMode(sections=(THREADS,)),
        StepMode(exchange=TrainingMode.PLANNED),
    )


def test_the_parts_with_the_smallest_predicted_shares_are_left_out_first() -> None:
    plan = _plan(FUSION, PRECISION, THREADS, fusion=90, precision=55, threads=60)
    whole = whole_mode(plan, plan.applied)
    assert left_out_first(plan, whole) == [PRECISION, THREADS, FUSION]
    trial = _decision(plan).trial
    assert trial is not None
    assert [mode.sections for mode in trial.modes] == [
        (),
        (FUSION, PRECISION, THREADS),
        (FUSION, THREADS),
        (FUSION, PRECISION),
    ]


def test_refused_sections_and_loaders_are_not_on_trial() -> None:
    decision = _decision(_plan(FUSION, LOADER, THREADS), {FUSION: "no compiler"})
    assert decision.trial is not None
    assert [mode.sections for mode in decision.trial.modes] == [(), (THREADS,)]
    status = _verdict(decision, [5.0])
    assert status.is_followed
    assert _applied(status) == {LOADER, THREADS}
    (refused,) = (one for one in status.sections if not one.is_applied)
    assert (refused.section, refused.reason) == (FUSION, "no compiler")


def test_a_plan_for_a_memory_limit_is_followed_without_a_trial(
    capfd: pytest.CaptureFixture[str],
) -> None:
    plan = replace(_plan(RECOMPUTE, has_pieces=True), memory_limit_bytes=8 * 10**9)
    decision = PlanDecision(0, TrialRules(), replan=True, searches_here=True)
    decision.take(plan, from_step=1, can_change_buckets=True)
    assert decision.trial is None
    assert decision.target == StepMode(exchange=TrainingMode.PLANNED, sections=(RECOMPUTE,))
    assert board.status is not None
    assert board.status.is_followed
    assert not board.status.has_trial
    assert board.status.why_no_trial == "it was made for a memory limit of 8 GB"
    assert "followed without a trial: it was made for a memory limit" in capfd.readouterr().err


@pytest.mark.parametrize("names", [(RECOMPUTE,), (RECOMPUTE, PRECISION)])
def test_a_plan_that_frees_no_memory_any_more_is_tried(names: tuple[PlanSection, ...]) -> None:
    plan = replace(_plan(*names, THREADS), memory_limit_bytes=8 * 10**9)
    decision = _decision(plan, dict.fromkeys(names, "the module has buffers"))
    assert decision.trial is not None
    assert board.status is not None
    assert board.status.has_trial
    if len(names) > 1:
        assert _decision(plan, {RECOMPUTE: "the module has buffers"}).trial is None


def test_a_plan_of_loader_workers_alone_is_followed_without_a_trial() -> None:
    decision = _decision(_plan(LOADER))
    assert decision.trial is None
    assert decision.target == STOCK
    assert board.status is not None
    assert board.status.is_followed
    assert not board.is_trial_due


def test_the_plan_without_a_part_is_followed_where_that_is_the_fastest() -> None:
    decision = _decision(_plan(RECOMPUTE, THREADS))
    status = _verdict(decision, [3.0, -2.0, 9.0])
    assert decision.target.sections == (RECOMPUTE,)
    assert status.is_followed
    assert status.from_step == 50
    assert _applied(status) == {RECOMPUTE}
    assert {one.reason for one in status.sections if not one.is_applied} == {
        "the trial in the job left it out"
    }


def test_a_plan_that_loses_is_tried_again_without_other_parts() -> None:
    plan = _plan(FUSION, PRECISION, THREADS, fusion=90, precision=55, threads=60)
    decision = _decision(plan)
    status = _verdict(decision, [-50.0, -5.0, -60.0])
    assert status.is_on_trial
    assert board.is_trial_due
    assert not _applied(status)
    assert decision.trial is not None
    assert [mode.sections for mode in decision.trial.modes] == [
        (),
        (FUSION, THREADS),
        (THREADS,),
    ]
    status = _verdict(decision, [-5.0, 4.0])
    assert not board.is_trial_due
    assert len(status.trials) == 2
    assert _applied(status) == {THREADS}


def test_stock_stays_where_every_part_loses() -> None:
    decision = _decision(_plan(RECOMPUTE, THREADS))
    status = _verdict(decision, [-3.0, -2.0, -1.0])
    assert not status.is_followed
    assert decision.target == STOCK
    assert not _applied(status)
    assert "slower than stock DDP" in (status.reason or "")


def test_a_section_that_fails_later_is_no_longer_applied() -> None:
    _decision(_plan(LOADER))
    note_refusal(LOADER, "a worker died", is_said=False)
    assert board.status is not None
    assert not board.status.is_followed
    assert board.status.reason == "a worker died"
    note_applied(LOADER)
    assert _applied(board.status) == {LOADER}


def test_the_outcome_names_the_parts_that_are_left_out() -> None:
    whole = StepMode(exchange=TrainingMode.PLANNED, sections=(THREADS,))
    modes = [STOCK, whole, StepMode(sections=(THREADS,)), replace(whole, sections=())]
    assert mode_names(modes, whole) == [
        "stock",
        "plan",
        "without communication",
        "without threads",
    ]
    status = _verdict(_decision(_plan(THREADS, has_pieces=True)), [1.0, 12.5, 3.0])
    line = trial_summary(status.trials[0])
    assert "plan 0.0001 ms, 1.0 % faster" in line
    assert "without communication 0.0001 ms, 12.5 % faster" in line
    assert line.endswith("the plan is followed without communication")
