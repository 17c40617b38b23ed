"""Real training under one policy after the other: foretold, measured, held against the bound."""

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
from benchmarks.validate.rows import Row
from benchmarks.validate.settings import Setting
from benchmarks.validate.suite import Suite, is_wanted

MATTERS = (0.9, 2.0)
"""The ratios of communication to compute at which scheduling has most to gain."""
FOLLOWED = (
    "transformer-1000mbit-small",
    "conv-1000mbit-small",
    "transformer-1000mbit-small-4ranks",
)
"""In which more is looked at than speed."""


def record(setting: Setting, folder: Path) -> None:
    (case,) = (case for case in CASES if case.setting == setting)
    measure(case, folder)


def outcomes(folder: Path) -> list[Outcome]:
    return [
        outcome_of(case, folder / case.name)
        for case in CASES
        if (folder / case.name / "done").exists()
    ]


def rows(settings: list[Setting], folder: Path, only: str | None) -> Iterator[Row]:
    names = {setting.name for setting in settings}
    for found in outcomes(folder):
        if found.case in names:
            yield from (row for row in rows_of(found) if is_wanted(row.case, only))


def checks(_rows: list[Row], folder: Path, only: str | None, _again: bool) -> Iterator[Check]:
    found = [one for one in outcomes(folder) if is_wanted(one.case, only)]
    if not found:
        return
    missed = [one for one in found if not one.picks_winner]
    yield _check("winner-not-picked", "choice", 100 * len(missed) / len(found), "%", 10.0)
    for one in found:
        yield _check(
            f"{one.case}/slower-than-ddp",
            "harm",
            -one.gain_pct(one.measured["ddp"].step_ns),
            "%",
            2.0,
            noise=2 * one.noise_pct,
        )
    for case in CASES:
        plan = plan_in(folder / case.name) if case.name in FOLLOWED else None
        if plan is not None and is_wanted(case.name, only):
            yield from Follower(case, plan, SUITE).checks()
    telling = [one for one in found if MATTERS[0] <= one.ratio <= MATTERS[1]]
    if telling:
        gains = [one.gain_pct(one.best_bucket_ns) for one in telling]
        yield _check("gain-missing-to-6-pct", "gain", max(0.0, 6.0 - median(gains)), "%", 0.0)
        shares = [one.realised for one in telling if one.realised is not None]
        lacking = max(0.0, 50 - 100 * median(shares)) if shares else 0.0
        yield _check("headroom-missing-to-half", "gain", lacking, "%", 0.0)


def _check(
    case: str, kind: str, value: float, unit: str, at_most: float, noise: float | None = None
) -> Check:
    return Check(
        suite=SUITE,
        case=case,
        kind=kind,
        value=round(value, 2),
        unit=unit,
        at_most=at_most,
        noise=None if noise is None else round(noise, 2),
    )


SCHEDULE = Suite(
    name=SUITE,
    settings=tuple(case.setting for case in CASES),
    record=record,
    rows=rows,
    checks=checks,
    gates=Gates(policies_within=0.9),
)
