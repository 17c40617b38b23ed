"""Strategies as real programs: each equals one process, and the oracle predicts its step."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from statistics import mean

from benchmarks.validate.checks import Check
from benchmarks.validate.gates import Gates
from benchmarks.validate.oracle_job import measure
from benchmarks.validate.oracle_rows import SUITE, Outcome, outcome_of, rows_of
from benchmarks.validate.progress import Progress
from benchmarks.validate.rows import Row
from benchmarks.validate.settings import Setting
from benchmarks.validate.suite import Suite, is_recorded, is_wanted

MEAN_PCT = 92.0
DATA_PCT = 97.0
EQUAL = 1e-9
"""Largest difference in double precision, relative to the largest value of the tensor."""

SETTINGS = tuple(
    Setting(
        name=f"{cnn}-{num_ranks}ranks", model=cnn, mbit=1000, num_ranks=num_ranks, ordinary=True
    )
    for num_ranks in (2, 4)
    for cnn in ("pyramid", "headed")
)


def outcomes(settings: list[Setting], folder: Path) -> list[Outcome]:
    return [
        outcome_of(setting.name, folder / setting.name)
        for setting in settings
        if is_recorded(setting, folder)
    ]


def rows(settings: list[Setting], folder: Path, only: str | None) -> Iterator[Row]:
    for found in outcomes(settings, folder):
        yield from (row for row in rows_of(found) if is_wanted(row.case, only))


def checks(_rows: list[Row], only: str | None, progress: Progress) -> Iterator[Check]:
    recorded = outcomes(list(SETTINGS), progress.folder)
    found = [one for one in recorded if is_wanted(one.case, only)]
    if found and only is None:
        every = [one.accuracy_pct(name) for one in found for name in one.measured]
        yield _check("mean-accuracy-missing", "accuracy", max(0.0, MEAN_PCT - mean(every)), 0.0)
        data = [one.accuracy_pct("data") for one in found]
        yield _check("data-accuracy-missing", "accuracy", max(0.0, DATA_PCT - mean(data)), 0.0)
    for one in found:
        yield _check(
            f"{one.case}/behind-fastest",
            "choice",
            one.behind_fastest_pct,
            2.0,
            noise=one.noise_pct,
        )
        for name, difference in one.differences.items():
            yield _check(f"{one.case}/{name}/difference", "equal", difference, EQUAL, unit="")


def _check(
    case: str,
    kind: str,
    value: float,
    at_most: float,
    *,
    unit: str = "%",
    noise: float | None = None,
) -> Check:
    return Check(
        suite=SUITE,
        case=case,
        kind=kind,
        value=round(value, 2) if unit else value,
        unit=unit,
        at_most=at_most,
        noise=None if noise is None else round(noise, 2),
    )


ORACLE = Suite(
    name=SUITE,
    settings=SETTINGS,
    record=measure,
    rows=rows,
    checks=checks,
    gates=Gates(),
    quick=("pyramid-2ranks*",),
)
