"""Whether a run followed a Plan, so that it can be judged by it."""

from __future__ import annotations

from augury.core.errors import InputError
from augury.core.plan.plan import Plan
from augury.core.plan.plan_file import plan_digest
from augury.core.plan.plan_status import PlanStatus, TrialResult
from augury.core.trace.trace import Trace

_REMEDY = "record it again with the plan: augury run --plan"


def check_followed(run: Trace, plan: Plan) -> None:
    """Raises InputError, with the cause, where the run did not follow this plan on all ranks, or
    followed another one in the end and did not try this one. Of a run whose recorder did not look,
    nothing is known: it passes."""
    if run.ranks and not any(facts.tells_of_plan or facts.plan for facts in run.ranks):
        return
    statuses = [facts.plan for facts in run.ranks]
    if not statuses or any(status is None for status in statuses):
        raise InputError("the run was not given a plan, so it tells nothing of one", remedy=_REMEDY)
    known = [status for status in statuses if status is not None]
    digest = plan_digest(plan)
    if any(status.digest and status.digest != digest for status in known):
        raise InputError("the run was given another plan than this one", remedy=_REMEDY)
    for status in known:
        if not status.is_followed:
            raise InputError(
                f"the run did not follow the plan: {_why_not(status)}",
                remedy="see to that cause, or follow the plan whatever the trial says:"
                " augury run --plan PLAN --no-trial",
            )
        replans = [one for one in status.replans if one.digest]
        if replans and trial_of(run, plan) is None:
            raise InputError(
                f"the run made another plan at step {replans[0].step}: {replans[0].reason}",
                remedy="make a plan for the conditions of now: augury schedule",
            )


def followed_from(run: Trace) -> int | None:
    """The step from which on all ranks followed their plan; None: they did not, or do not say."""
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
    """The last trial of this plan in the run that measured anything."""
    if plan is None:
        return None
    digest = plan_digest(plan)
    for facts in run.ranks:
        trials = facts.plan.trials if facts.plan is not None else []
        for trial in reversed(trials):
            if trial.times and trial.digest in ("", digest):
                return trial
    return None


def _why_not(status: PlanStatus) -> str:
    if status.reason:
        return status.reason
    if status.is_on_trial:
        return "it ended while the plan was on trial"
    return "stock training was kept"
