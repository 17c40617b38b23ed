"""Judges a Plan by a run: whether the run followed it, and how good its prediction was."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from augury.core.errors import InputError
from augury.core.plan.plan import Plan, PlanPrediction, PlanSection
from augury.core.plan.plan_file import plan_digest
from augury.core.plan.plan_status import PlanStatus, TrialResult
from augury.core.results.comparison import Comparison
from augury.core.trace.trace import Trace

_REMEDY = "record it again with the plan: augury run --plan"
_FOLLOW_REGARDLESS = "follow the plan whatever the trial finds: augury run --plan PLAN --no-trial"


def check_followed(run: Trace, plan: Plan) -> None:
    """Raises InputError unless all ranks followed this plan, or tried it before they followed
    another one. A run whose recorder stored no plan status passes."""
    if run.ranks and not any(facts.tells_of_plan or facts.plan for facts in run.ranks):
        return
    statuses = [facts.plan for facts in run.ranks]
    if not statuses or any(status is None for status in statuses):
        raise InputError("the run was recorded without a plan", remedy=_REMEDY)
    known = [status for status in statuses if status is not None]
    digest = plan_digest(plan)
    if any(status.digest and status.digest != digest for status in known):
        raise InputError("the run was given another plan than this one", remedy=_REMEDY)
    for status in known:
        if not status.is_followed:
            raise InputError(
                f"the run did not follow the plan: {_why_not(status)}",
                remedy=f"train for more steps, or {_FOLLOW_REGARDLESS}"
                if status.is_on_trial
                else _FOLLOW_REGARDLESS
                if status.trials
                else "remove that cause, or make a plan of the job as it is: augury optimize",
            )
        replans = [one for one in status.replans if one.digest]
        if replans and trial_of(run, plan) is None:
            raise InputError(
                f"the run made another plan at step {replans[0].step}: {replans[0].reason}",
                remedy="make a plan for the present conditions: augury schedule",
            )


def followed_from(run: Trace) -> int | None:
    """First step in which all ranks followed their plan; None where they did not, or where the run
    does not say."""
    statuses = [facts.plan for facts in run.ranks]
    steps = [
        first
        for status in statuses
        if status is not None
        and status.is_followed
        and (first := status.settled_step or status.from_step) is not None
    ]
    return max(steps) if steps and len(steps) == len(statuses) else None


def trial_of(run: Trace, plan: Plan | None) -> TrialResult | None:
    """The last trial of this plan in the run that has measured times."""
    if plan is None:
        return None
    digest = plan_digest(plan)
    for facts in run.ranks:
        trials = facts.plan.trials if facts.plan is not None else []
        for trial in reversed(trials):
            if trial.times and trial.digest in ("", digest):
                return trial
    return None


def not_applied(runs: Iterable[Trace]) -> dict[str, str]:
    """Sections of the plan that some rank of the runs did not apply, with the first reason."""
    found: dict[str, str] = {}
    for run in runs:
        for facts in run.ranks:
            for one in facts.plan.sections if facts.plan is not None else []:
                if not one.is_applied:
                    found.setdefault(one.section.value, one.reason or "no reason is recorded")
    return found


def judged_by(found: Comparison, plan: Plan) -> Comparison:
    """Adds the plan's prediction to a comparison, scaled to the step measured before the change."""
    if plan.prediction is None or plan.prediction.baseline_ns <= 0:
        raise InputError(
            "the plan predicts nothing", remedy="make it from the run before: augury schedule -o"
        )
    baseline_ns = plan.prediction.baseline_ns
    low, share, high = (
        step_ns / baseline_ns for step_ns in _predicted_without(plan.prediction, found.not_applied)
    )
    measured = 1 - found.gain_pct / 100
    before_ns = found.before.step_ns
    return msgspec.structs.replace(
        found,
        policy=plan.communication.order.policy if plan.communication is not None else None,
        memory_limit_bytes=plan.memory_limit_bytes,
        predicted_step_ns=round(before_ns * share),
        predicted_interval_ns=(round(before_ns * low), round(before_ns * high)),
        predicted_gain_pct=round(100 * (1 - share), 4),
        error_pct=round(100 * (share / measured - 1), 4) if measured > 0 else None,
        came_true=low <= measured <= high,
    )


def _predicted_without(
    prediction: PlanPrediction, left_out: Iterable[str]
) -> tuple[float, float, float]:
    """The predicted step with its interval, without these sections. Where several are missing,
    their shares add up, as if none depended on another one, and the interval reaches back to the
    largest single share."""
    low, high = prediction.interval_ns
    step_ns = prediction.step_ns
    known = prediction.without_ns
    shares = [known[name] - step_ns for one in left_out if (name := PlanSection(one)) in known]
    longer = 1 + sum(shares) / step_ns if step_ns else 1.0
    least = 1 + max(shares, default=0) / step_ns if step_ns else 1.0
    return low * min(least, longer), step_ns * longer, high * max(least, longer)


def _why_not(status: PlanStatus) -> str:
    if status.reason:
        return status.reason
    if status.is_on_trial and (anew := [one for one in status.replans if one.digest]):
        return (
            f"the run ended during the trial of another plan, which it made at step {anew[-1].step}"
            f" ({anew[-1].reason})"
        )
    if status.is_on_trial:
        return "the run ended during the trial of the plan"
    return "stock training was kept"
