"""Real training under one policy after the other: predicted, measured, compared with stock DDP."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from statistics import median

from benchmarks.validate.checks import Check
from benchmarks.validate.gates import Gates
from benchmarks.validate.policy_checks import Follower, plan_in
from benchmarks.validate.policy_job import measure
from benchmarks.validate.policy_rows import SUITE, Outcome, outcome_of, rows_of
from benchmarks.validate.policy_settings import CASES
from benchmarks.validate.progress import Progress
from benchmarks.validate.rows import Row
from benchmarks.validate.settings import Setting
from benchmarks.validate.suite import Suite, is_recorded, is_wanted

MATTERS = (0.9, 2.0)
"""The ratios of communication to compute at which scheduling has most to gain."""
FOLLOWED = (
    "transformer-1000mbit-small",
    "conv-1000mbit-small",
    "transformer-1000mbit-small-4ranks",
)
"""Cases in which more than speed is checked."""


def record(setting: Setting, folder: Path) -> None:
    (case,) = (case for case in CASES if case.setting == setting)
    measure(case, folder)


def outcomes(folder: Path) -> list[Outcome]:
    return [
        outcome_of(case, folder / case.name) for case in CASES if is_recorded(case.setting, folder)
    ]


def rows(settings: list[Setting], folder: Path, only: str | None) -> Iterator[Row]:
    names = {setting.name for setting in settings}
    for found in outcomes(folder):
        if found.case in names:
            yield from (row for row in rows_of(found) if is_wanted(row.case, only))


def checks(_rows: list[Row], only: str | None, progress: Progress) -> Iterator[Check]:
    folder = progress.folder
    found = [one for one in outcomes(folder) if is_wanted(one.case, only)]
    for one in found:
        yield _check(f"{one.case}/leftover-hooks", "rightness", one.leftover_hooks, 0.0, unit="")
        yield _check(f"{one.case}/slower-than-ddp", "harm", one.slower_than_stock_pct, 2.0)
        if one.trial_slower_pct is not None:
            yield _check(f"{one.case}/trial/slower-than-ddp", "harm", one.trial_slower_pct, 1.0)
    for case in CASES:
        plan = plan_in(folder / case.name) if case.name in FOLLOWED else None
        if plan is not None and is_wanted(case.name, only):
            follower = Follower(case, plan, SUITE)
            yield from progress.checks(f"{case.name}/followed", follower.checks)
    if found and only is None:
        yield from over_all(found)


def over_all(found: list[Outcome]) -> Iterator[Check]:
    missed = sum(not one.picks_winner for one in found)
    yield _check("winner-not-picked", "choice", 100 * missed / len(found), 10.0)
    below = sum(one.is_below_bound for one in found)
    yield _check("measured-below-bound", "bound", 100 * below / len(found), 0.0)
    telling = [one for one in found if MATTERS[0] <= one.ratio <= MATTERS[1]]
    if telling:
        gains = [one.gain_pct(one.best_bucket) for one in telling]
        yield _check("gain-missing-to-6-pct", "gain", max(0.0, 6.0 - median(gains)), 0.0)


def _check(case: str, kind: str, value: float, at_most: float, *, unit: str = "%") -> Check:
    return Check(
        suite=SUITE, case=case, kind=kind, value=round(value, 2), unit=unit, at_most=at_most
    )


SCHEDULE = Suite(
    name=SUITE,
    settings=tuple(case.setting for case in CASES),
    record=record,
    rows=rows,
    checks=checks,
    gates=Gates(),
    predicts_in_job=True,
    quick=("transformer-1000mbit-small", "transformer-1000mbit-small/*"),
)
