"""Rows of trainers: replay, half the rate, and the plan that the job tried against stock DDP."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.validate.measured import Measured, alternating, of_halves, plain_and_recorded
from benchmarks.validate.predicted import ask
from benchmarks.validate.rows import Row
from benchmarks.validate.suite import replayed
from benchmarks.validate.trainers_job import PLANNED, SCHEDULED, stretches_of
from benchmarks.validate.trainers_settings import HALVED, TrainerCase
from benchmarks.validate.tried_plan import TriedPlan, tried_plan

SUITE = "trainers"


def rows_of(case: TrainerCase, folder: Path) -> Iterator[Row]:
    replay = replayed(SUITE, case.setting, folder)
    yield replay
    own = folder / case.name
    halved = halved_steps(own)
    predicted = ask("whatif", own / "run", *HALVED.whatif)
    yield Row(
        suite=SUITE,
        case=f"{case.name}/{HALVED.name}",
        kind="whatif",
        measured_ns=halved.step_ns,
        predicted_ns=predicted.step_ns,
        interval_ns=predicted.interval_ns,
        noise_pct=halved.noise_pct,
        num_steps=halved.num_steps,
        baseline_ns=replay.measured_ns,
        trouble=predicted.trouble,
    )
    tried = tried_plan(own / PLANNED)
    if tried is not None and replay.measured_ns is not None:
        yield _followed(case, own, tried, replay.measured_ns)


def _followed(case: TrainerCase, folder: Path, tried: TriedPlan, baseline_ns: int) -> Row:
    """Returns the row of a plan. The job that tried it began later than the recorded one: the
    measured gain is applied to the recorded job's step, so that drift between the two is no
    error."""
    best = scheduled_policy(folder)
    interval = best["interval_ns"]
    return Row(
        suite=SUITE,
        case=f"{case.name}/plan",
        kind="policy",
        measured_ns=round(baseline_ns * tried.ratio),
        predicted_ns=int(best["step_ns"]),
        interval_ns=None if interval is None else (interval[0], interval[1]),
        noise_pct=tried.noise_pct,
        num_steps=tried.num_steps,
        baseline_ns=baseline_ns,
    )


def halved_steps(folder: Path) -> Measured:
    """Returns the plain steps at half the rate; two interleaved halves of the stretches give the
    noise."""
    record = json.loads((folder / "raw" / "rank-00000.json").read_text())
    plain, _ = plain_and_recorded(record)
    stretches = [one.steps(record["step_end_ns"]) for one in stretches_of(folder) if one.is_halved]
    rounds = [[plain[step] for step in steps if step in plain] for steps in stretches]
    return of_halves(alternating([steps for steps in rounds if steps]))


def scheduled(folder: Path) -> dict[str, Any]:
    """Returns the answer of ``augury schedule``."""
    found: dict[str, Any] = json.loads((folder / SCHEDULED).read_text())
    return found


def scheduled_policy(folder: Path, name: str | None = None) -> dict[str, Any]:
    """Returns the answer about one policy, the best by default."""
    answer = scheduled(folder)
    found: dict[str, Any] = next(
        one for one in answer["policies"] if one["policy"] == (name or answer["best"])
    )
    return found
