"""Plans of ``augury optimize``, applied to the job that they were made for: predicted and realised
gains, and predicted and measured memory."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean, median

from benchmarks.validate import optimize_job, optimize_memory
from benchmarks.validate.checks import Check
from benchmarks.validate.gates import Gates
from benchmarks.validate.optimize_memory import limit_checks
from benchmarks.validate.optimize_rows import (
    PLAN_KIND,
    SUITE,
    applied_plan,
    optimized,
    refused_sections,
    row_of,
)
from benchmarks.validate.optimize_settings import MEMORY_CASES, PLAN_CASES, PlanCase
from benchmarks.validate.progress import Progress
from benchmarks.validate.rows import Row
from benchmarks.validate.settings import Setting
from benchmarks.validate.suite import Suite, is_recorded, is_wanted, recorded

EXPOSED_PCT = 5.0
"""Share of the step from which on communication counts as exposed."""
GAIN_POINTS = 5.0
MISSED_PCT, HALF_WIDTH_PCT, GAIN_PCT, HARM_PCT = 15.0, 8.0, 20.0, 1.0


def record(setting: Setting, folder: Path) -> None:
    for case in PLAN_CASES:
        if case.setting == setting:
            optimize_job.measure(case, folder)
    for one in MEMORY_CASES:
        if one.setting == setting:
            optimize_memory.measure(one, folder)


def rows(settings: list[Setting], folder: Path, only: str | None) -> Iterator[Row]:
    done = {setting.name for setting in recorded(settings, folder)}
    for case in PLAN_CASES:
        if case.name in done and is_wanted(case.name, only):
            yield row_of(case, folder / case.name)
    for one in MEMORY_CASES:
        if one.name in done:
            found = optimize_memory.rows_of(one, folder / one.name)
            yield from (row for row in found if is_wanted(row.case, only))


def checks(found: list[Row], only: str | None, progress: Progress) -> Iterator[Check]:
    folder = progress.folder
    cases = [
        case
        for case in PLAN_CASES
        if is_recorded(case.setting, folder) and is_wanted(case.name, only)
    ]
    for case in cases:
        yield from _of_case(case, folder / case.name)
    for one in MEMORY_CASES:
        if is_recorded(one.setting, folder) and is_wanted(one.name, only):
            yield from limit_checks(one, folder / one.name)
    if only is None:
        yield from over_all(found, [case for case in cases if is_exposed(case, folder)])


def _of_case(case: PlanCase, folder: Path) -> Iterator[Check]:
    refused = refused_sections(folder)
    yield _check(
        f"{case.name}/sections-refused", "rightness", len(refused), 0.0,
        unit="", trouble="; ".join(refused) or None,
    )  # fmt: skip
    applied = applied_plan(folder)
    if applied is not None:
        kept = applied.kept
        yield _check(
            f"{case.name}/slower-than-default", "harm", -kept.gain_pct, HARM_PCT,
            noise=round(kept.noise_pct, 2),
        )  # fmt: skip


def is_exposed(case: PlanCase, folder: Path) -> bool:
    return (optimized(folder / case.name)["exposed_pct"] or 0.0) >= EXPOSED_PCT


def over_all(found: Sequence[Row], exposed: Sequence[PlanCase]) -> Iterator[Check]:
    """Checks over all rows. ``exposed``: cases in which compute waits for communication."""
    plans = [row for row in found if row.kind == PLAN_KIND]
    decided = [row for row in plans if not row.is_undecided]
    if decided:
        far = [not is_close(row) for row in decided]
        yield _check("gains-off-by-5-points", "plan", 100 * fmean(far), MISSED_PCT)
        outside = [row.is_covered is not True for row in decided]
        yield _check("steps-outside-intervals", "plan", 100 * fmean(outside), MISSED_PCT)
    widths = [row.half_width_pct for row in plans if row.half_width_pct is not None]
    if widths:
        yield _check("median-half-width", "plan", median(widths), HALF_WIDTH_PCT)
    slow = {case.name for case in PLAN_CASES if case.has_slow_loader}
    for name, cases in (
        ("exposed", {case.name for case in exposed} - slow),
        ("slow-loader", slow),
    ):
        own = [row for row in plans if row.case in cases]
        if own:
            missing = max(0.0, GAIN_PCT - mean_gain_pct(own))
            yield _check(f"{name}/gain-missing-to-20-pct", "gain", missing, 0.0)
    memory = [row for row in found if row.kind == optimize_memory.KIND]
    if memory:
        far_off = sum(not row.is_within for row in memory)
        yield _check("peaks-off-by-5-pct", optimize_memory.KIND, far_off, 0.0, unit="")


def is_close(row: Row) -> bool:
    """Whether the realised gain is within 5 points of the predicted one."""
    if row.measured_gain_pct is None or row.predicted_gain_pct is None:
        return False
    return abs(row.measured_gain_pct - row.predicted_gain_pct) <= GAIN_POINTS


def mean_gain_pct(found: Sequence[Row]) -> float:
    """Returns the reduction of the step by the geometric mean of the ratios. A case without a plan
    keeps its step."""
    logs = [math.log(1 - (row.measured_gain_pct or 0.0) / 100) for row in found]
    return 100 * (1 - math.exp(fmean(logs)))


def _check(
    case: str,
    kind: str,
    value: float,
    at_most: float,
    *,
    unit: str = "%",
    noise: float | None = None,
    trouble: str | None = None,
) -> Check:
    return Check(
        suite=SUITE,
        case=case,
        kind=kind,
        value=round(value, 2),
        unit=unit,
        at_most=at_most,
        noise=noise,
        trouble=trouble,
    )


OPTIMIZE = Suite(
    name=SUITE,
    settings=(
        *(case.setting for case in PLAN_CASES),
        *(one.setting for one in MEMORY_CASES),
    ),
    record=record,
    rows=rows,
    checks=checks,
    gates=Gates(),
    predicts_in_job=True,
    quick=("last-1000mbit", "loader-last-1000mbit", "memory-transformer*"),
)
