"""Ordinary programs recorded with the defaults: coverage and width of the 90 % interval, and
whether ``augury diff`` tells a gain from a repetition."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from benchmarks.validate.checks import Check
from benchmarks.validate.coverage_job import record_setting, run_program
from benchmarks.validate.coverage_rows import SUITE, claims_gain, diff, rows_of
from benchmarks.validate.gates import Gates
from benchmarks.validate.progress import Progress
from benchmarks.validate.rows import Row
from benchmarks.validate.settings import Setting
from benchmarks.validate.suite import Suite, is_recorded, is_wanted

ALONE, LOADED = "alone", "beside-load"
NOT_COVERED_PCT = 15.0
HALF_WIDTH_PCT = {ALONE: 8.0, LOADED: 15.0}

PROGRAMS = ("mlp", "cnn", "transformer", "embedding", "irregular", "evaluating", "loading")
HELD_BACK = ("recurrent", "accumulating", "pausing")
"""Programs that were not used while the interval was developed."""
NUM_STEPS = 300
WORK = 3

PAIRS = {"mlp": 4, "transformer": 3, "cnn": 3}
"""Programs whose runs are compared in pairs, and the number of pairs."""
SLOW_WORK, FAST_WORK = 10, 9
"""Work that gives a true gain of 10 %."""
PAIR_STEPS = 300
MOST_FALSE_CLAIMS, MOST_MISSED_GAINS = 1, 2


def _settings() -> Iterator[Setting]:
    for place, program in enumerate((*PROGRAMS, *HELD_BACK)):
        for repetition in range(2 if program in PROGRAMS else 1):
            for kind in (ALONE, LOADED):
                load = f"{10 * place + repetition}" if kind == LOADED else ""
                yield Setting(
                    name=f"{program}-{kind}-{repetition + 1}",
                    model=program,
                    mbit=None,
                    num_ranks=1 + (place + repetition) % 2,
                    options=(str(NUM_STEPS), str(WORK), load),
                )
    for program in PAIRS:
        yield Setting(name=f"pairs-{program}", model=program, mbit=None, num_ranks=1)


SETTINGS = tuple(_settings())


def record(setting: Setting, folder: Path) -> None:
    if not _is_pairs(setting):
        record_setting(setting, folder)
        return
    shutil.rmtree(folder, ignore_errors=True)
    for number in range(PAIRS[setting.model] + 1):
        for name, work in (("slow", SLOW_WORK), ("fast", FAST_WORK)):
            if name == "slow" or number < PAIRS[setting.model]:
                run_program(folder / f"{name}-{number}", setting.model, steps=PAIR_STEPS, work=work)
    (folder / "setting.json").write_text(json.dumps({"name": setting.name}))


def rows(settings: list[Setting], folder: Path, only: str | None) -> Iterator[Row]:
    for setting in settings:
        if is_recorded(setting, folder) and not _is_pairs(setting):
            kind = LOADED if LOADED in setting.name else ALONE
            for row in rows_of(setting.name, kind, folder / setting.name):
                if is_wanted(row.case, only):
                    yield row


def checks(found: list[Row], only: str | None, progress: Progress) -> Iterator[Check]:
    if only is None:
        for kind in (ALONE, LOADED):
            yield from _of_rows(kind, [row for row in found if row.kind == kind])
        yield from _of_pairs(progress.folder)


def _of_rows(kind: str, found: list[Row]) -> Iterator[Check]:
    covered = [bool(row.is_covered) for row in found]
    widths = [row.half_width_pct for row in found if row.half_width_pct is not None]
    if covered and widths:
        missed_pct = 100 * (1 - sum(covered) / len(covered))
        yield _check(f"{kind}/not-covered", missed_pct, NOT_COVERED_PCT)
        yield _check(f"{kind}/median-half-width", median(widths), HALF_WIDTH_PCT[kind])


def _of_pairs(folder: Path) -> Iterator[Check]:
    pairs = [one for one in SETTINGS if _is_pairs(one) and is_recorded(one, folder)]
    if len(pairs) < len(PAIRS):
        return
    false_claims = missed = 0
    for setting in pairs:
        runs = folder / setting.name
        for number in range(PAIRS[setting.model]):
            slow = runs / f"slow-{number}" / "run"
            again = diff(slow, runs / f"slow-{number + 1}" / "run")
            false_claims += claims_gain(again)
            faster = diff(slow, runs / f"fast-{number}" / "run")
            missed += faster["gain_interval_pct"][0] <= 0
    yield _check("repeats/claimed-gains", false_claims, MOST_FALSE_CLAIMS, unit="of 10")
    yield _check("gains-of-10-pct/not-claimed", missed, MOST_MISSED_GAINS, unit="of 10")


def _is_pairs(setting: Setting) -> bool:
    return setting.name.startswith("pairs-")


def _check(case: str, value: float, at_most: float, *, unit: str = "%") -> Check:
    return Check(
        suite=SUITE, case=case, kind="coverage", value=round(value, 2), unit=unit, at_most=at_most
    )


COVERAGE = Suite(
    name=SUITE,
    settings=SETTINGS,
    rows=rows,
    checks=checks,
    gates=Gates(),
    quick=("mlp-alone-1*", "cnn-beside-load-1*"),
    record=record,
)
