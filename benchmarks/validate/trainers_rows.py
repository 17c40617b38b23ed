"""Rows of trainers: replay, half the rate, and the plan that the job tried against stock DDP."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any

import msgspec

from augury.core.plan.plan_status import PlanStatus
from augury.runtime.trial import Trial, TrialRules
from augury.runtime.trial_modes import StepMode, mode_of_time
from benchmarks.validate.measured import Measured, alternating, of_halves, plain_and_recorded
from benchmarks.validate.predicted import ask
from benchmarks.validate.rows import Row
from benchmarks.validate.suite import replayed
from benchmarks.validate.trainers_job import PLANNED, SCHEDULED, stretches_of
from benchmarks.validate.trainers_settings import HALVED, TrainerCase

SUITE = "trainers"


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedPlan:
    """Steps of the plan's mode over stock steps, in the same rounds of a trial."""

    ratio: float
    noise_pct: float
    num_steps: int

    @property
    def gain_pct(self) -> float:
        return 100 * (1 - self.ratio)


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
    tried = tried_plan(own)
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


def plan_status(folder: Path) -> PlanStatus | None:
    """Returns the status of the plan in the job that was given it; None if there was no plan."""
    path = folder / PLANNED / "rank-00000.json"
    if not path.exists():
        return None
    return msgspec.convert(json.loads(path.read_text())["plan"], PlanStatus)


def tried_plan(folder: Path) -> TriedPlan | None:
    """Returns the plan's steps over those of stock DDP, timed by the recorder in the rounds of the
    trial; None if there was no trial."""
    status = plan_status(folder)
    if status is None or not status.trials:
        return None
    trial, rules = status.trials[0], TrialRules()
    modes = [mode_of_time(time) for time in trial.times]
    blocks = Trial(modes, trial.first_step - rules.warm_up_steps, rules)
    durations = _mean_over_ranks(folder / PLANNED)
    rounds: dict[StepMode, list[list[int]]] = {mode: [] for mode in modes}
    for first in range(trial.first_step, trial.last_step + 1, rules.block_steps):
        counted = range(first + rules.settling_steps, first + rules.block_steps)
        rounds[blocks.mode_of(first)].append([durations[step] for step in counted])
    stock, own = rounds[modes[0]], rounds[modes[1]]  # stock DDP, then the whole plan
    pairs = zip(alternating(own), alternating(stock), strict=True)
    halves = [median(ours) / median(theirs) for ours, theirs in pairs]
    ratio = of_halves(alternating(own)).step_ns / of_halves(alternating(stock)).step_ns
    return TriedPlan(
        ratio=ratio,
        noise_pct=100 * abs(halves[0] - halves[1]) / ratio,
        num_steps=sum(map(len, own)),
    )


def _mean_over_ranks(run: Path) -> dict[int, int]:
    """Returns the duration of each step: two ranks under a plan are ahead of each other in
    turns."""
    ends = [
        json.loads(path.read_text())["step_end_ns"] for path in sorted(run.glob("rank-?????.json"))
    ]
    number = min(map(len, ends))
    return {
        step: round(fmean(own[step - 1] - own[step - 2] for own in ends))
        for step in range(2, number + 1)
    }
