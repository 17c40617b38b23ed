"""Compares two runs of one job, and the second one with the prediction of a Plan.

Two runs differ by more than the variation of their steps shows, since the machine is in another
state. The level of a run is therefore a random effect. Its variance comes from the levels of
segments within the runs, and from the usual difference between runs on a quiet machine.
"""

from __future__ import annotations

import math
from collections.abc import Container

from augury.core.enums import OpKind
from augury.core.errors import InputError
from augury.core.measured_step import (
    MeasuredRun,
    StepLevel,
    level,
    level_of,
    measured_run,
    run_segments,
    student,
)
from augury.core.plan.plan import Plan, PlanSection
from augury.core.plan.plan_status import ModeTime, TrainingMode, TrialResult, mode_of
from augury.core.results.comparison import Comparison, ComputeChange
from augury.core.trace.trace import Trace
from augury.costs.prediction_interval import BETWEEN_RUNS, combine_errors
from augury.diagnose.machine_speed import TimedSteps, at_equal_speed
from augury.diagnose.part_changes import level_change, with_part_changes
from augury.diagnose.run_levels import RunLevels, run_levels
from augury.diagnose.run_parts import run_parts
from augury.predict.judge_plan import followed_from, judged_by, not_applied, trial_of

OTHER_LOAD = 0.1
"""Cores used by other processes beyond which steps are compared without waiting for a core."""

MOVED_BY_PLANS = (OpKind.FORWARD.label, OpKind.UPDATE.label)
"""Kinds of operations that a plan in pieces moves: updates happen within the next forward, which
also waits for gradients. Their change says nothing about the machine."""

CHANGE_COMPUTE = (
    PlanSection.FUSION,
    PlanSection.RECOMPUTE,
    PlanSection.PRECISION,
    PlanSection.THREADS,
    PlanSection.LOADER,
)
"""Sections of a plan that change compute or loading themselves."""


def compare_runs(before: Trace, after: Trace, plan: Plan | None = None) -> Comparison:
    first, second = measured_run(before), measured_run(after)
    if first.num_ranks != second.num_ranks:
        raise InputError(
            f"the runs have {first.num_ranks} and {second.num_ranks} ranks",
            remedy="compare runs of the same job",
        )
    levels = run_levels(before), run_levels(after)
    changes = _compute_changes(*levels)
    if plan is not None or any(_is_planned(run) for run in (before, after)):
        changes = [change for change in changes if change.kind not in MOVED_BY_PLANS]
    source, pair = _compared(first, second, *levels)
    equal = at_equal_speed((before, after), pair)
    if equal is not None:
        pair = equal.before, equal.after
    gain_pct, interval_pct = _gain(*pair, speed_error=equal.error if equal is not None else 0.0)
    if source == "undelayed":
        interval_pct = _with_steps(
            gain_pct, interval_pct, 100 * (1 - second.step_ns / first.step_ns)
        )
    trial = trial_of(after, plan)
    missing = not_applied([after]) if plan is not None else {}
    planned = _planned_time(trial, plan, missing)
    if planned is not None:
        source, gain_pct, interval_pct = "trial", planned.gain_pct, planned.interval_pct
    elif plan is not None and not _changes_compute(plan, missing):
        interval_pct = _with_compute(interval_pct, changes, first.step_ns)
    found = Comparison(
        before=first,
        after=second,
        gain_pct=round(gain_pct, 4),
        gain_interval_pct=(round(interval_pct[0], 4), round(interval_pct[1], 4)),
        gain_source=source,
        machine_change_pct=round(100 * math.expm1(equal.change), 4) if equal is not None else None,
        compute_changes=changes,
        trial=trial,
        followed_from_step=followed_from(after) if plan is not None else None,
        not_applied=missing,
    )
    found = with_part_changes(found, run_parts(before), run_parts(after))
    return found if plan is None else judged_by(found, plan)


def _is_planned(run: Trace) -> bool:
    return any(
        facts.plan is not None and facts.plan.mode is TrainingMode.PLANNED for facts in run.ranks
    )


def _compared(
    first: MeasuredRun, second: MeasuredRun, before: RunLevels, after: RunLevels
) -> tuple[str, tuple[TimedSteps, TimedSteps]]:
    loads = (first.other_load, second.other_load)
    is_loaded = any(load is not None and load > OTHER_LOAD for load in loads)
    if is_loaded and before.undelayed is not None and after.undelayed is not None:
        return "undelayed", (before.undelayed, after.undelayed)
    return "steps", (before.step, after.step)


def _with_steps(
    gain_pct: float, interval_pct: tuple[float, float], of_steps_pct: float
) -> tuple[float, float]:
    """Extends the interval to the gain of whole steps where that has the opposite sign: the
    direction of the change is then unknown."""
    if gain_pct * of_steps_pct >= 0:
        return interval_pct
    return min(interval_pct[0], of_steps_pct), max(interval_pct[1], of_steps_pct)


def _gain(
    before: TimedSteps, after: TimedSteps, *, speed_error: float
) -> tuple[float, tuple[float, float]]:
    """The gain in percent and its 90 % interval; ``speed_error`` is the standard error, as a share,
    of the correction for the machine's speed."""
    levels = [level(one.number, one.dur_ns) for one in (before, after)]
    change = math.log(levels[1].value_ns / levels[0].value_ns)
    error, freedom = combine_errors(
        *((one.error, one.freedom) for one in levels),
        *((one.drift, one.freedom) for one in map(_settled, (before, after))),
        (math.sqrt(2) * BETWEEN_RUNS, math.inf),
        (speed_error, math.inf),
    )
    reach = student(freedom) * error
    low, high = (100 * -math.expm1(min(50.0, change + side * reach)) for side in (1, -1))
    return 100 * -math.expm1(change), (low, high)


def _settled(steps: TimedSteps) -> StepLevel:
    """The level of a run without its first segment, in which a job may warm up. Later
    variation is taken to occur between runs as well."""
    first, *others = run_segments(steps.number)
    return level_of([steps.dur_ns[part] for part in others or [first]], winsorize=False)


def _compute_changes(before: RunLevels, after: RunLevels) -> list[ComputeChange]:
    found = []
    for kind in before.compute.keys() & after.compute.keys():
        was, now = before.compute[kind], after.compute[kind]
        change = level_change(was, now)
        if change.is_certain:
            found.append(
                ComputeChange(
                    kind=kind,
                    before_ns=round(was.value_ns),
                    after_ns=round(now.value_ns),
                    change_pct=round(100 * math.expm1(change.log_ratio), 4),
                )
            )
    return sorted(found, key=lambda one: -abs(one.after_ns - one.before_ns))


def _with_compute(
    interval_pct: tuple[float, float], changes: list[ComputeChange], before_ns: int
) -> tuple[float, float]:
    """Extends the interval to the gain without the change of compute: a plan that changes only
    communication does not cause it, so the machine did."""
    more_ns = sum(one.after_ns - one.before_ns for one in changes)
    moved = 100 * more_ns / before_ns
    low, high = interval_pct
    return min(low, low + moved), max(high, high + moved)


def _changes_compute(plan: Plan, missing: Container[str]) -> bool:
    return any(one in CHANGE_COMPUTE and one not in missing for one in plan.sections)


def _planned_time(
    trial: TrialResult | None, plan: Plan | None, missing: Container[str]
) -> ModeTime | None:
    """The trial's result for what is applied of the plan; None where the trial does not show it:
    loader workers are the same in all of its modes."""
    if trial is None or plan is None:
        return None
    if plan.loader is not None and PlanSection.LOADER not in missing:
        return None
    mode = TrainingMode.STOCK if PlanSection.COMMUNICATION in missing else mode_of(plan)
    if mode is TrainingMode.STOCK and not trial.sections:
        return None
    return next(
        (
            time
            for time in trial.times
            if time.mode is mode and {*time.sections} == {*trial.sections}
        ),
        None,
    )
