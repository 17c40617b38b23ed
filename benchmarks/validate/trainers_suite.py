"""Programs of trainers on the test bed: replay, half the rate, and the plan, as users run them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from benchmarks.validate.checks import Check
from benchmarks.validate.gates import Gates, PooledGates
from benchmarks.validate.launched_job import said
from benchmarks.validate.progress import Progress
from benchmarks.validate.rows import Row
from benchmarks.validate.settings import Setting
from benchmarks.validate.suite import Suite, is_wanted, recorded
from benchmarks.validate.trainers_job import PLANNED, STOCK, measure, printed_results
from benchmarks.validate.trainers_rows import (
    SUITE,
    rows_of,
    scheduled,
    scheduled_policy,
)
from benchmarks.validate.trainers_settings import CASES, TrainerCase
from benchmarks.validate.tried_plan import plan_status, tried_plan

EXPOSED_PCT = 5.0
"""Share of the step from which on communication counts as exposed."""


def record(setting: Setting, folder: Path) -> None:
    (case,) = (case for case in CASES if case.setting == setting)
    measure(case, folder)


def rows(settings: list[Setting], folder: Path, only: str | None) -> Iterator[Row]:
    done = {setting.name for setting in recorded(settings, folder)}
    for case in CASES:
        if case.name in done:
            yield from (row for row in rows_of(case, folder) if is_wanted(row.case, only))


def checks(_rows: list[Row], only: str | None, progress: Progress) -> Iterator[Check]:
    for case in CASES:
        folder = progress.folder / case.name
        if (folder / "setting.json").exists() and is_wanted(case.name, only):
            if case.prevented_by is None:
                yield from _of_followed(case, folder)
            else:
                yield from _of_refused(case, folder, case.prevented_by)


def _of_followed(case: TrainerCase, folder: Path) -> Iterator[Check]:
    status, tried = plan_status(folder / PLANNED), tried_plan(folder / PLANNED)
    reason = scheduled(folder)["trouble"] or (status.reason if status is not None else None)
    if status is not None:
        yield _check(f"{case.name}/plan-refused", "rightness", float(tried is None), reason)
        stock, planned = (printed_results(folder, name) for name in (STOCK, PLANNED))
        is_complete = len(stock) == len(planned) == case.setting.num_ranks
        different = len(set(stock) - set(planned)) if is_complete else None
        yield _check(f"{case.name}/results-that-differ", "equal", different)
    # Where no plan pays off beyond the noise of the run, there is none to follow.
    if reason is not None or (status is not None and _exposed_pct(folder) >= EXPOSED_PCT):
        slower = None if tried is None else -tried.gain_pct
        noise = None if tried is None else round(tried.noise_pct, 2)
        yield _check(
            f"{case.name}/slower-than-stock", "harm", slower, reason, noise=noise, unit="%"
        )


def _of_refused(case: TrainerCase, folder: Path, setting: str) -> Iterator[Check]:
    """Checks that ``augury schedule`` names the setting that prevents every plan, and that a job
    with a plan does so too."""
    answer = scheduled(folder)
    told = [" ".join([answer["trouble"] or "", *answer.get("warnings", [])])]
    if plan_status(folder / PLANNED) is not None:
        told.append(said(folder, PLANNED))
    unnamed = sum(setting not in text for text in told)
    yield _check(f"{case.name}/setting-not-named", "rightness", float(unnamed), told[0])


def _exposed_pct(folder: Path) -> float:
    """Returns the share of a stock step in which compute waits for communication."""
    stock = scheduled_policy(folder, "ddp")
    return float(100 * stock["waiting_ns"] / stock["step_ns"])


def _check(
    case: str,
    kind: str,
    value: float | None,
    trouble: str | None = None,
    *,
    noise: float | None = None,
    unit: str = "",
) -> Check:
    return Check(
        suite=SUITE,
        case=case,
        kind=kind,
        value=None if value is None else round(value, 2),
        unit=unit,
        at_most=0.0,
        noise=noise,
        trouble=trouble,
    )


TRAINERS = Suite(
    name=SUITE,
    settings=tuple(case.setting for case in CASES),
    record=record,
    rows=rows,
    checks=checks,
    gates=Gates(pooled=PooledGates(within=0.85, covered=0.85, half_width_pct=8.0)),
    quick=("accelerate-mlp*",),
)
