"""Rows and checks of the optimize suite, from plans and records of jobs with known steps."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from benchmarks.testbed.allocations import SKIPPED_STEPS, step_peaks
from benchmarks.validate.optimize_job import PAIRS, exposed_pct
from benchmarks.validate.optimize_memory import (
    COUNTED_STEPS,
    LIMITED,
    MEASURED_STEPS,
    limit_checks,
)
from benchmarks.validate.optimize_memory import rows_of as memory_rows
from benchmarks.validate.optimize_rows import PLAN_KIND, refused_sections, row_of
from benchmarks.validate.optimize_settings import MEMORY_CASES, PLAN_CASES
from benchmarks.validate.optimize_suite import OPTIMIZE, mean_gain_pct, over_all
from benchmarks.validate.rows import Row
from benchmarks.validate.suite import chosen
from benchmarks.validate.tried_plan import applied_sections, kept_mode, parts_pct

from augury.core.plan.plan import Plan, PlanPrediction, PlanSection
from augury.core.plan.plan_file import save_plan
from augury.core.plan.sections import CompressionSection, FusionSection, LoaderSection
from augury.runtime.trial import TrialRules

MS = 1_000_000
START_NS = 10**18
CASE = PLAN_CASES[0]
FUSION, COMPRESSION = PlanSection.FUSION, PlanSection.COMPRESSION
DIGEST = "0" * 64
PLAN = Plan(
    num_ranks=2,
    parameters_digest=DIGEST,
    fusion=FusionSection(modules=("body",)),
    compression=CompressionSection(),
    applied=(FUSION, COMPRESSION),
    prediction=PlanPrediction(
        baseline_ns=102 * MS,
        step_ns=80 * MS,
        interval_ns=(72 * MS, 88 * MS),
        bound_ns=50 * MS,
        without_ns={FUSION: 85 * MS, COMPRESSION: 97 * MS},
    ),
)


def record_of(durations_ms: list[float], plan: dict[str, Any] | None = None) -> dict[str, Any]:
    ends = [START_NS]
    for dur_ms in durations_ms:
        ends.append(ends[-1] + round(dur_ms * MS))
    return {"step_end_ns": ends[1:], "windows": [], "resumed": [], "plan": plan}


def write_run(folder: Path, record: dict[str, Any]) -> None:
    folder.mkdir(parents=True)
    for rank in range(2):
        (folder / f"rank-{rank:05d}.json").write_text(json.dumps(record))


def trial_of(
    steps_ms: dict[tuple[PlanSection, ...], float], winner: tuple[PlanSection, ...]
) -> tuple[dict[str, Any], list[float]]:
    """Returns a trial of modes with these sections, and the steps of its job."""
    rules, modes = TrialRules(), [*steps_ms]
    first = 1 + rules.warm_up_steps
    durations = [100.0] * (first - 1)
    for number in range(rules.least_rounds):
        for mode in modes if number % 2 == 0 else reversed(modes):
            durations += [steps_ms[mode]] * rules.block_steps
    times = [
        {"mode": "stock", "num_blocks": 4, "step_ns": 1, "sections": [*mode]} for mode in modes
    ]
    trial = {
        "first_step": first,
        "last_step": len(durations),
        "is_decided": True,
        "winner": "stock",
        "sections": [*winner],
        "times": times,
    }
    return trial, durations


def write_case(
    folder: Path,
    *,
    whole_ms: float = 82,
    winner: tuple[PlanSection, ...] = (FUSION, COMPRESSION),
    refused: str | None = None,
) -> None:
    """Writes a case whose recorded job had steps of 110 ms, and the trial stock steps of 100."""
    write_run(folder / "run", record_of([110.0] * 40))
    save_plan(PLAN, folder / "plan.json")
    told = {"answer": {}, "trouble": None, "exposed_pct": 40.0}
    (folder / "optimized.json").write_text(json.dumps(told))
    modes = {(): 100.0, (FUSION, COMPRESSION): whole_ms, (COMPRESSION,): 88.0, (FUSION,): 97.0}
    if refused is not None:
        modes = {(): 100.0, (COMPRESSION,): whole_ms}
    trial, durations = trial_of(modes, winner)
    sections = [
        {
            "section": name,
            "is_applied": name in winner,
            "reason": refused if name == FUSION else None,
        }
        for name in PLAN.applied
    ]
    status = {"is_followed": True, "sections": sections, "trials": [trial]}
    write_run(folder / "planned", record_of(durations, status))


def test_a_row_has_the_realised_step_of_the_trial_and_the_predicted_one(tmp_path: Path) -> None:
    """The recorded job was slower than the later one as a whole: only the gain is carried over."""
    write_case(tmp_path)
    row = row_of(CASE, tmp_path)
    assert (row.kind, row.case) == (PLAN_KIND, CASE.name)
    assert row.baseline_ns == 110 * MS
    assert row.measured_ns == pytest.approx(0.82 * 110 * MS)
    assert row.measured_gain_pct == pytest.approx(18)
    assert row.predicted_ns == 80 * MS
    assert row.predicted_gain_pct == pytest.approx(100 * (1 - 80 / 102))
    assert row.sections == ("fusion", "compression")
    assert row.is_covered is False
    assert Row.from_json(json.loads(json.dumps(row.as_json()))).sections == row.sections


def test_parts_are_what_the_whole_plan_gains_more_than_the_plan_without_them(
    tmp_path: Path,
) -> None:
    write_case(tmp_path)
    row = row_of(CASE, tmp_path)
    assert row.predicted_parts_pct == {"fusion": 4.9, "compression": 16.67}
    assert row.measured_parts_pct == {"fusion": 6.0, "compression": 15.0}
    assert parts_pct(tmp_path / "run") == {}


def test_the_kept_mode_is_judged_apart_from_the_whole_plan(tmp_path: Path) -> None:
    """A trial that leaves a slow part out makes the job faster than the whole plan."""
    write_case(tmp_path, whole_ms=105, winner=(COMPRESSION,))
    kept = kept_mode(tmp_path / "planned")
    assert kept is not None
    assert kept.gain_pct == pytest.approx(12)
    assert row_of(CASE, tmp_path).measured_gain_pct == pytest.approx(-5)
    assert refused_sections(tmp_path) == []


def test_refused_sections_are_named_with_their_reason(tmp_path: Path) -> None:
    write_case(tmp_path, winner=(COMPRESSION,), refused="no compiler")
    assert refused_sections(tmp_path) == ["fusion: no compiler"]
    assert applied_sections(tmp_path / "planned") == ("compression",)


def test_a_case_without_a_plan_has_a_row_with_the_reason(tmp_path: Path) -> None:
    write_run(tmp_path / "run", record_of([110.0] * 40))
    told = {"answer": None, "trouble": "nothing gains", "exposed_pct": None}
    (tmp_path / "optimized.json").write_text(json.dumps(told))
    row = row_of(CASE, tmp_path)
    assert row.trouble == "nothing gains"
    assert row.measured_ns is None
    assert mean_gain_pct([row]) == 0


def test_a_loader_is_judged_by_whole_jobs_in_pairs(tmp_path: Path) -> None:
    """The machine becomes slower from job to job, which favours neither."""
    plan = replace(PLAN, fusion=None, loader=LoaderSection(num_workers=2))
    applied = (PlanSection.COMPRESSION, PlanSection.LOADER)
    save_plan(replace(plan, applied=applied, prediction=None), tmp_path / "plan.json")
    status = {
        "is_followed": True,
        "sections": [{"section": name, "is_applied": True} for name in applied],
    }
    for number, kind in enumerate(PAIRS):
        step_ms = (100 if kind == "default" else 60) * 1.01**number
        under = status if kind == "planned" else None
        write_run(tmp_path / f"{kind}-{number}", record_of([step_ms] * 40, under))
    write_run(tmp_path / "run", record_of([100.0] * 40))
    told = {"answer": {}, "trouble": None, "exposed_pct": 0.0}
    (tmp_path / "optimized.json").write_text(json.dumps(told))
    row = row_of(CASE, tmp_path)
    assert row.measured_gain_pct == pytest.approx(40, abs=0.1)
    assert row.noise_pct == pytest.approx(2, abs=0.1)
    assert row.sections == ("compression", "loader")


def plan_row(
    case: str, measured_ms: float, predicted_ms: float = 80, *, noise_pct: float = 0.5
) -> Row:
    return Row(
        suite="optimize",
        case=case,
        kind=PLAN_KIND,
        measured_ns=round(measured_ms * MS),
        predicted_ns=round(predicted_ms * MS),
        interval_ns=(round(0.95 * predicted_ms * MS), round(1.05 * predicted_ms * MS)),
        noise_pct=noise_pct,
        baseline_ns=100 * MS,
        predicted_gain_pct=100 - predicted_ms,
    )


def values_of(found: list[Row]) -> dict[str, tuple[float | None, bool | None]]:
    exposed = [case for case in PLAN_CASES if case.name in {row.case for row in found}]
    return {check.case: (check.value, check.holds) for check in over_all(found, exposed)}


def test_gains_more_than_five_points_off_are_counted() -> None:
    names = [case.name for case in PLAN_CASES]
    close = values_of([plan_row(name, 80 + 4.9) for name in names[:7]])
    assert close["gains-off-by-5-points"] == (0.0, True)
    assert close["steps-outside-intervals"] == (100.0, False)
    far = [plan_row(name, 80) for name in names[:4]] + [plan_row(names[4], 86)]
    assert values_of(far)["gains-off-by-5-points"] == (20.0, False)
    noisy = [*far[:4], plan_row(names[4], 86, noise_pct=6)]
    assert values_of(noisy)["gains-off-by-5-points"] == (0.0, True)
    assert values_of(far)["median-half-width"] == (5.0, True)


def test_slow_loaders_do_not_count_for_the_gain_where_communication_is_exposed() -> None:
    slow = next(case.name for case in PLAN_CASES if case.has_slow_loader)
    quick = [case.name for case in PLAN_CASES if not case.has_slow_loader]
    found = [plan_row(quick[0], 90), plan_row(quick[1], 64), plan_row(slow, 30)]
    assert mean_gain_pct(found[:2]) == pytest.approx(100 * (1 - (0.9 * 0.64) ** 0.5))
    checks = values_of(found)
    assert checks["exposed/gain-missing-to-20-pct"] == (0.0, True)
    assert checks["slow-loader/gain-missing-to-20-pct"] == (0.0, True)
    assert values_of([plan_row(quick[0], 90), found[2]])["exposed/gain-missing-to-20-pct"] == (
        10.0,
        False,
    )


def test_exposed_communication_is_that_of_stock_steps() -> None:
    policies = [
        {"policy": "augury", "waiting_ns": 1, "step_ns": 80},
        {"policy": "ddp", "waiting_ns": 30, "step_ns": 120},
    ]
    assert exposed_pct({"policies": policies}) == 25
    assert exposed_pct({}) is None


def events_of(steps: list[list[int]]) -> list[dict[str, Any]]:
    """Returns profiler events of steps that state these totals one after the other."""
    events: list[dict[str, Any]] = []
    at = 0
    for totals in steps:
        for total in totals:
            at += 10
            args = {"Device Type": 0, "Total Allocated": total, "Bytes": 1}
            events.append({"name": "[memory]", "ts": at, "args": args})
        events.append({"name": "Optimizer.step#SGD.step", "ts": at + 1, "dur": 2})
    return events[::-1]


def test_the_peak_of_a_step_includes_what_is_held_from_the_step_before() -> None:
    skipped = [[900, 50]] * SKIPPED_STEPS
    assert step_peaks(events_of([*skipped, [70, 100, 60], [10, 20], [15]])) == [100, 60, 20]


def write_memory(folder: Path, peaks: dict[str, float], *, from_step: int = 9) -> None:
    case = MEMORY_CASES[0]
    for name in (*(one.name for one in case.variations), LIMITED):
        place = folder / name
        place.mkdir(parents=True)
        told = {"peak_bytes": 100_000, "trouble": None, "limit_bytes": 70_000}
        (place / "predicted.json").write_text(json.dumps(told))
        steps = [10**9] * (MEASURED_STEPS - COUNTED_STEPS) + [
            round(peaks.get(name, 100) * 1000)
        ] * COUNTED_STEPS
        plan = {"is_followed": True, "reason": None, "sections": [], "from_step": from_step}
        for rank in range(2):
            held = {"step_peaks_bytes": [size - rank for size in steps], "plan": plan}
            (place / f"peak-{rank:05d}.json").write_text(json.dumps(held))


def test_peaks_are_those_of_steps_under_the_plan(tmp_path: Path) -> None:
    write_memory(tmp_path, {"bf16": 96, "recomputed": 90})
    rows = {row.case.partition("/")[2]: row for row in memory_rows(MEMORY_CASES[0], tmp_path)}
    assert rows["bf16"].measured_bytes == 96_000
    assert rows["bf16"].is_within
    assert not rows["recomputed"].is_within
    found = {check.case: check for check in over_all([*rows.values()], [])}
    assert found["peaks-off-by-5-pct"].value == 1


@pytest.mark.parametrize(("peak", "holds"), [(69, True), (71, False)])
def test_a_plan_for_less_memory_has_to_stay_under_its_limit(
    tmp_path: Path, peak: float, holds: bool
) -> None:
    write_memory(tmp_path, {LIMITED: peak})
    (check,) = limit_checks(MEMORY_CASES[0], tmp_path)
    assert check.holds is holds


def test_a_plan_that_is_followed_too_late_is_no_measurement(tmp_path: Path) -> None:
    write_memory(tmp_path, {LIMITED: 60}, from_step=MEASURED_STEPS)
    (check,) = limit_checks(MEMORY_CASES[0], tmp_path)
    assert check.holds is False
    assert check.trouble is not None


def test_cases_cover_what_the_suite_claims() -> None:
    assert len(PLAN_CASES) >= 10
    assert {case.setting.num_ranks for case in PLAN_CASES} == {2, 4}
    assert len({case.program for case in PLAN_CASES}) >= 4
    assert 4 * sum(case.has_slow_loader for case in PLAN_CASES) <= len(PLAN_CASES)
    variations = [one for case in MEMORY_CASES for one in case.variations]
    assert len(variations) >= 8
    assert any(one.modules for one in variations)
    assert any(one.is_half for one in variations)
    assert any(one.micro_batches > 1 for one in variations)
    assert any(case.limit_by for case in MEMORY_CASES)
    names = [setting.name for setting in OPTIMIZE.settings]
    assert len(set(names)) == len(names)
    assert len(chosen(OPTIMIZE.settings, ",".join(OPTIMIZE.quick))) == 3


@pytest.mark.more
def test_allocations_of_all_threads_are_counted(tmp_path: Path) -> None:
    """Another thread frees 40 MB, which no event of the profiler shows."""
    pytest.importorskip("torch")
    program = tmp_path / "train.py"
    program.write_text(
        textwrap.dedent(
            """
            import threading

            import torch

            model = torch.nn.Linear(8, 8)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            blocks = [torch.zeros(10_000_000)]
            thread = threading.Thread(target=blocks.clear)
            thread.start()
            thread.join()
            for step in range(8):
                optimizer.zero_grad()
                block = torch.zeros(1_000_000 if step == 6 else 10)
                model(torch.ones(1, 8)).sum().backward()
                optimizer.step()
            """
        )
    )
    command = [sys.executable, "-m", "benchmarks.testbed.allocations", str(tmp_path), str(program)]
    subprocess.run(command, check=True, cwd=Path(__file__).parents[2], capture_output=True)
    peaks = json.loads((tmp_path / "peak-00000.json").read_text())["step_peaks_bytes"]
    assert len(peaks) == 8 - SKIPPED_STEPS
    assert peaks[0] < 1_000_000
    assert 4_000_000 <= peaks[1] < 5_000_000
