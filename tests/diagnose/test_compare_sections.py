"""Plans of several sections are judged by what the run applied of them."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest

from augury.core.plan.plan import Plan, PlanSection
from augury.core.plan.plan_file import plan_digest
from augury.core.plan.plan_status import ModeTime, SectionStatus, TrainingMode, TrialResult
from augury.core.plan.sections import CompressionSection, LoaderSection, ThreadsSection
from augury.diagnose.compare_runs import compare_runs
from augury.report.diff import render_diff
from tests.diagnose.test_compare import plan_of, run_of, with_status
from tests.ingest.written import MS

COMMUNICATION, THREADS, LOADER = (
    PlanSection.COMMUNICATION,
    PlanSection.THREADS,
    PlanSection.LOADER,
)
COMPRESSION = PlanSection.COMPRESSION


def _plan(*, without_ns: dict[PlanSection, int], loader: bool = False) -> Plan:
    """A plan that takes a step from 100 ms to 60 ms."""
    plan = plan_of(100 * MS, 60 * MS)
    assert plan.prediction is not None
    plan = replace(
        plan,
        threads=ThreadsSection(num_threads=2),
        compression=CompressionSection(),
        applied=(COMMUNICATION, THREADS, COMPRESSION),
        prediction=replace(plan.prediction, without_ns=without_ns),
    )
    if loader:
        plan = replace(plan, loader=LoaderSection(num_workers=2), applied=(*plan.applied, LOADER))
    return plan


def _statuses(plan: Plan, refused: dict[PlanSection, str]) -> list[SectionStatus]:
    return [
        SectionStatus(section=one, is_applied=one not in refused, reason=refused.get(one))
        for one in plan.applied
    ]


@pytest.mark.parametrize(
    ("refused", "predicted_ms"),
    [
        ({}, 60),
        ({THREADS: "too few cores"}, 72),
        ({THREADS: "too few cores", COMPRESSION: "left out"}, 77),
    ],
)
def test_the_prediction_is_that_of_the_applied_sections(
    tmp_path: Path, refused: dict[PlanSection, str], predicted_ms: int
) -> None:
    plan = _plan(without_ns={THREADS: 72 * MS, COMPRESSION: 65 * MS})
    before, after = run_of(tmp_path / "a"), run_of(tmp_path / "b", predicted_ms / 100)
    run = with_status(after, plan, sections=_statuses(plan, refused))
    found = compare_runs(before, run, plan)
    assert found.not_applied == {one.value: reason for one, reason in refused.items()}
    assert found.predicted_gain_pct == pytest.approx(100 - predicted_ms, abs=0.01)
    assert found.error_pct == pytest.approx(0, abs=0.5)
    assert found.came_true


def test_the_report_names_what_was_not_applied(tmp_path: Path) -> None:
    plan = replace(
        _plan(without_ns={}), communication=None, applied=(THREADS, COMPRESSION), run_digest=""
    )
    run = with_status(
        run_of(tmp_path / "b", 0.6),
        plan,
        mode=TrainingMode.STOCK,
        sections=_statuses(plan, {THREADS: "too few cores"}),
    )
    found = compare_runs(run_of(tmp_path / "a"), run, plan)
    assert found.policy is None
    text = StringIO()
    render_diff(found, text, before="a", after="b")
    assert "Section threads of the plan was not applied: too few cores." in text.getvalue()
    assert "policy" not in text.getvalue()


def test_a_slower_step_under_a_plan_for_a_memory_limit_is_no_failed_gain(tmp_path: Path) -> None:
    plan = replace(plan_of(100 * MS, 130 * MS), memory_limit_bytes=8 * 10**9)
    found = compare_runs(
        run_of(tmp_path / "a"), with_status(run_of(tmp_path / "b", 1.3), plan), plan
    )
    assert found.is_told_apart
    text = StringIO()
    render_diff(found, text, before="a", after="b")
    assert "The plan was made for a memory limit of 8 GB, not for a gain" in text.getvalue()
    assert "A loss" not in text.getvalue()


@pytest.mark.parametrize("loader", [False, True])
def test_the_trial_shows_the_gain_of_a_plan_without_loader_workers(
    tmp_path: Path, loader: bool
) -> None:
    """Workers load in all modes of the trial."""
    plan = _plan(without_ns={COMPRESSION: 70 * MS}, loader=loader)
    times = [
        ModeTime(
            mode=mode,
            sections=sections,
            num_blocks=4,
            step_ns=100,
            gain_pct=gain_pct,
            interval_pct=(gain_pct - 1, gain_pct + 1),
        )
        for mode, sections, gain_pct in (
            (TrainingMode.STOCK, [], 0.0),
            (TrainingMode.PLANNED, [THREADS, COMPRESSION], 20.0),
            (TrainingMode.PLANNED, [THREADS], 31.0),
        )
    ]
    trial = TrialResult(
        first_step=1,
        last_step=2,
        is_decided=True,
        winner=TrainingMode.PLANNED,
        sections=[THREADS],
        times=times,
        digest=plan_digest(plan),
    )
    run = with_status(
        run_of(tmp_path / "b", 0.6),
        plan,
        trials=[trial],
        sections=_statuses(plan, {COMPRESSION: "the trial in the job left it out"}),
    )
    found = compare_runs(run_of(tmp_path / "a"), run, plan)
    assert (found.gain_source == "trial") == (not loader)
    assert found.gain_pct == pytest.approx(40.0 if loader else 31.0, abs=0.5)
