"""The gain of a plan in the job that tried it, from the rounds of its trial."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median

import msgspec

from augury.core.plan.plan import PlanSection
from augury.core.plan.plan_status import PlanStatus, TrainingMode, TrialResult
from augury.runtime.trial import Trial, TrialRules
from augury.runtime.trial_modes import StepMode, mode_of_time, parts_of, winner_of, without
from benchmarks.validate.measured import alternating, of_halves

WHOLE = 1
"""Place of the whole plan among the modes of its first trial; stock comes first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedPlan:
    """Steps of a mode of training over stock steps, in the same rounds of a trial."""

    ratio: float
    noise_pct: float
    num_steps: int

    @property
    def gain_pct(self) -> float:
        return 100 * (1 - self.ratio)


def plan_status(run: Path) -> PlanStatus | None:
    """Returns the status of the plan in the job that was given it; None if there was no plan."""
    path = run / "rank-00000.json"
    if not path.exists():
        return None
    return msgspec.convert(json.loads(path.read_text())["plan"], PlanStatus | None)


def applied_sections(run: Path) -> tuple[str, ...]:
    """Returns the sections of the plan that the job could apply, whatever its trial kept."""
    status = plan_status(run)
    if status is None or status.reason is not None:
        return ()
    if status.trials:
        first = modes_of(status.trials[0])[WHOLE]
        switched = [PlanSection.COMMUNICATION] * (first.exchange is not TrainingMode.STOCK)
        return tuple(one.value for one in (*switched, *first.sections))
    return tuple(one.section.value for one in status.sections if one.is_applied)


def tried_plan(run: Path) -> TriedPlan | None:
    """Returns the steps of the whole plan over those of stock DDP, timed by the recorder in the
    rounds of the first trial; None if there was no trial."""
    status = plan_status(run)
    if status is None or not status.trials:
        return None
    trial = status.trials[0]
    return _over_stock(run, trial, modes_of(trial)[WHOLE])


def kept_mode(run: Path) -> TriedPlan | None:
    """Returns the steps of the mode that stays after all trials, as timed in the last of them."""
    status = plan_status(run)
    if status is None or not status.trials:
        return None
    trial = status.trials[-1]
    return _over_stock(run, trial, winner_of(trial))


def parts_pct(run: Path) -> dict[str, float]:
    """Returns the gain that is lost without a section, in points, for each section that a trial
    left out."""
    status = plan_status(run)
    found = {}
    for trial in status.trials if status is not None else ():
        modes = modes_of(trial)
        whole = modes[WHOLE]
        for part in parts_of(whole):
            if without(whole, part) in modes[WHOLE + 1 :]:
                left = _over_stock(run, trial, without(whole, part))
                found[part.value] = round(
                    _over_stock(run, trial, whole).gain_pct - left.gain_pct, 2
                )
    return found


def modes_of(trial: TrialResult) -> list[StepMode]:
    return [mode_of_time(time) for time in trial.times]


def _over_stock(run: Path, trial: TrialResult, mode: StepMode) -> TriedPlan:
    rules, modes = TrialRules(), modes_of(trial)
    blocks = Trial(modes, trial.first_step - rules.warm_up_steps, rules)
    durations = _mean_over_ranks(run)
    rounds: dict[StepMode, list[list[int]]] = {one: [] for one in modes}
    for first in range(trial.first_step, trial.last_step + 1, rules.block_steps):
        counted = range(first + rules.settling_steps, first + rules.block_steps)
        rounds[blocks.mode_of(first)].append([durations[step] for step in counted])
    own, stock = rounds[mode], rounds[modes[0]]
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
