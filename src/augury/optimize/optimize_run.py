"""Finds the best plan of a recorded run: the search, the choice of what stays, its prediction."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from augury.core.errors import InfeasibleError, UsageError
from augury.core.plan.plan import Plan, PlanPrediction, PlanSection
from augury.core.plan.plan_spec import verify_plan
from augury.core.progress import silent
from augury.core.results.optimization import (
    OptimizeResult,
    SearchEffort,
    SectionShare,
)
from augury.core.units import format_bytes, format_ns, format_percent
from augury.executor import IN_THIS_PROCESS, Executor
from augury.optimize.prune import pruned
from augury.optimize.scene_space import SceneSpace
from augury.optimize.search import Found, SearchOptions, search
from augury.optimize.section_choices import ADVISED, NEEDS, Numerics
from augury.optimize.space import Candidate, Evaluated, Objective
from augury.optimize.tried_changes import advice_of, tried_changes
from augury.predict.plan_prediction import (
    APPLIED,
    PlannedRun,
    PredictedPlan,
    ledger_of,
    open_planned,
    predict_plan,
    section_words,
)

if TYPE_CHECKING:
    from augury.core.timeline import Timeline
    from augury.predict.opened_run import OpenedRun

MAX_HOLDERS = 3
_TIMED = (PlanSection.FUSION, PlanSection.PRECISION, PlanSection.THREADS)
"""Sections that calibration measures."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a user asks of a plan."""

    memory_limit_bytes: int | None = None
    allowed: frozenset[Numerics] = frozenset()
    only: frozenset[PlanSection] | None = None
    """Sections to choose from; None stands for all."""

    def permits(self, name: PlanSection) -> bool:
        return name not in NEEDS or NEEDS[name] in self.allowed

    def sections(self, *, needs_memory: bool) -> frozenset[PlanSection]:
        """Returns the sections to search. Recomputation only costs time, unless memory is short."""
        found = {
            name
            for name in PlanSection
            if name not in ADVISED
            and self.permits(name)
            and (self.only is None or name in self.only)
            and (name is not PlanSection.RECOMPUTE or needs_memory)
        }
        return frozenset(found)


@dataclass(frozen=True, kw_only=True, eq=False)
class Optimized:
    result: OptimizeResult
    plan: Plan | None
    """The best combination, whether it pays or not; None where nothing gains at all."""


def optimize_run(run: OpenedRun, wanted: Wanted, options: SearchOptions | None = None) -> Optimized:
    """Searches the combinations of changes to a run. Raises InfeasibleError where none of them
    meets the memory limit."""
    _check(wanted)
    options = options or SearchOptions()
    planned = open_planned(run)
    limit = wanted.memory_limit_bytes
    objective = Objective(memory_limit_bytes=limit)
    baseline_peak = _peak_bytes(planned.baseline)
    if limit is not None and baseline_peak is None:
        raise UsageError(
            "the run has no record of memory, so no limit can be checked",
            remedy="record it again with `augury run`, or leave --memory-limit out",
        )
    needs_memory = limit is not None and (baseline_peak or 0) > limit
    sections = wanted.sections(needs_memory=needs_memory)
    combined = _combined(planned, sections, objective, options)
    if not objective.is_feasible(combined.evaluated):
        raise _infeasible(planned, limit or 0, combined)
    dropped: dict[PlanSection, str] = {}
    while doubtful := _doubtful(planned, combined.predicted):
        sections -= {*doubtful}
        sure = _combined(planned, sections, objective, options)
        if not objective.is_feasible(sure.evaluated):
            break  # the limit is met only with them
        combined = sure
        dropped |= doubtful
    plan, predicted, found = combined.plan, combined.predicted, combined.found
    if plan is not None and predicted is not None and planned.case is not None:
        plan = replace(plan, prediction=_prediction(planned, plan, predicted))
        verify_plan(plan)
    timeline = planned.baseline if predicted is None else predicted.timeline
    gain_pct = 0.0
    if predicted is not None and predicted.prediction.gain_pct is not None:
        gain_pct = predicted.prediction.gain_pct
    can_pay = (
        plan is not None
        and planned.case is not None
        and (gain_pct > 100 * planned.noise or needs_memory)
    )
    result = OptimizeResult(
        num_ranks=planned.num_ranks,
        measured_step_ns=None if planned.case is None else planned.case.measured_ns,
        baseline_step_ns=planned.baseline.step_ns,
        predicted_step_ns=timeline.step_ns,
        interval_ns=None if predicted is None else predicted.prediction.interval_ns,
        gain_pct=round(gain_pct, 4),
        noise_pct=round(100 * planned.noise, 4),
        can_pay=can_pay,
        baseline_peak_bytes=baseline_peak,
        peak_bytes=_peak_bytes(timeline),
        memory_limit_bytes=limit,
        sections=[] if plan is None or predicted is None else shares(planned, plan, predicted),
        tried=tried_changes(
            planned, plan, wanted, options, needs_memory=needs_memory, dropped=dropped
        ),
        advice=advice_of(planned, needs_memory=needs_memory),
        search=_effort(found, options),
        ledger=list(ledger_of(planned)),
        warnings=[] if planned.case is None else planned.case.warnings,
    )
    return Optimized(result=result, plan=plan)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Combined:
    """The best combination of some sections."""

    found: Found
    evaluated: Evaluated
    plan: Plan | None
    predicted: PredictedPlan | None


def _combined(
    run: PlannedRun,
    sections: frozenset[PlanSection],
    objective: Objective,
    options: SearchOptions,
) -> _Combined:
    has_limit = objective.memory_limit_bytes is not None
    space = SceneSpace(run, sections, options=options, has_limit=has_limit)
    found = search(space, objective=objective, options=options, progress=run.progress)
    plan = _plan(run, space, pruned(space, objective, found))
    return _Combined(
        found=found,
        evaluated=found.evaluated[found.best],
        plan=plan,
        predicted=None if plan is None else predict_plan(run, plan),
    )


def shares(run: PlannedRun, plan: Plan, predicted: PredictedPlan) -> list[SectionShare]:
    """Returns what each section of a plan gains in it."""
    baseline_ns, step_ns = max(1, run.baseline.step_ns), predicted.timeline.step_ns
    return [
        SectionShare(
            section=name.value,
            what=section_words(name, getattr(plan, name.value)),
            without_ns=predicted.without_ns[name],
            share_pct=round(100 * (predicted.without_ns[name] - step_ns) / baseline_ns, 4),
            error_pct=round(100 * predicted.errors[name], 4),
        )
        for name in plan.applied
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Start:
    """One of several searches that differ in their seed."""

    run: OpenedRun
    wanted: Wanted
    options: SearchOptions


def optimize_widely(
    run: OpenedRun,
    wanted: Wanted,
    options: SearchOptions | None = None,
    *,
    num_starts: int = 1,
    executor: Executor = IN_THIS_PROCESS,
) -> Optimized:
    """Returns the best outcome of several searches, which run at the same time where the executor
    has the workers."""
    options = options or SearchOptions()
    if num_starts == 1:
        return optimize_run(run, wanted, options)
    quiet = replace(run, progress=silent)
    starts = [
        _Start(run=quiet, wanted=wanted, options=replace(options, seed=options.seed + number))
        for number in range(num_starts)
    ]
    found = executor.run(
        _optimize_start,
        starts,
        work="searching",
        describe=lambda one: f"seed {one.options.seed}",
        progress=run.progress,
    )
    return min(found, key=lambda one: (not one.result.can_pay, one.result.predicted_step_ns))


def _optimize_start(start: _Start) -> Optimized:
    return optimize_run(start.run, start.wanted, start.options)


def _check(wanted: Wanted) -> None:
    for name in wanted.only or ():
        if not wanted.permits(name):
            raise UsageError(
                f"section {name} changes the numbers of the training",
                remedy=f"allow it: --allow {NEEDS[name]}",
            )


def _doubtful(run: PlannedRun, predicted: PredictedPlan | None) -> dict[PlanSection, str]:
    """Returns sections whose gain is smaller than the error of its prediction, with reasons."""
    if predicted is None:
        return {}
    baseline_ns = max(1, run.baseline.step_ns)
    found = {}
    for name, without_ns in predicted.without_ns.items():
        gain = (without_ns - predicted.timeline.step_ns) / baseline_ns
        error = predicted.errors[name]
        # Recomputation is there for memory.
        if gain < error and name is not PlanSection.RECOMPUTE:
            hint = "; `augury run --calibrate` measures it" if name in _TIMED else ""
            found[name] = (
                f"gains {format_percent(100 * gain)} in the best combination, less than the error"
                f" of its prediction ({format_percent(100 * error)}){hint}"
            )
    return found


def _plan(run: PlannedRun, space: SceneSpace, best: Candidate) -> Plan | None:
    """Returns a candidate as a plan; None for the run as recorded."""
    sections: dict[PlanSection, Any] = dict(space.sections_of(best))
    compiled = space.order_of(best)
    if compiled is not None:
        sections[PlanSection.COMMUNICATION] = compiled.section
    if not sections:
        return None
    return Plan(
        num_ranks=run.num_ranks,
        parameters_digest=run.parameters_digest,
        run_digest=run.run_digest,
        applied=tuple(name for name in APPLIED if name in sections),
        **{"communication": None, **{name.value: one for name, one in sections.items()}},
    )


def _prediction(run: PlannedRun, plan: Plan, predicted: PredictedPlan) -> PlanPrediction:
    step_ns = predicted.timeline.step_ns
    times_ns = [step_ns, run.baseline.step_ns, *predicted.without_ns.values()]
    return PlanPrediction(
        baseline_ns=run.baseline.step_ns,
        step_ns=step_ns,
        interval_ns=predicted.prediction.interval_ns or (step_ns, step_ns),
        bound_ns=min([*times_ns, run.bound_ns(plan)]),
        without_ns=predicted.without_ns,
    )


def _peak_bytes(timeline: Timeline) -> int | None:
    return max((peak.size_bytes for peak in timeline.peak_memory), default=None)


def _effort(found: Found, options: SearchOptions) -> SearchEffort:
    return SearchEffort(
        num_candidates=found.num_candidates,
        num_replayed=len(found.evaluated),
        elapsed_s=round(found.elapsed_s, 3),
        is_complete=found.is_complete,
        seed=options.seed,
    )


def _infeasible(run: PlannedRun, limit_bytes: int, nearest: _Combined) -> InfeasibleError:
    """Names the binding constraint and the nearest feasible plan."""
    plan, predicted = nearest.plan, nearest.predicted
    timeline = run.baseline if predicted is None else predicted.timeline
    peak = max(timeline.peak_memory, key=lambda one: one.size_bytes)
    by_kind: dict[str, int] = {}
    for holder in peak.holders:
        by_kind[holder.kind.label] = by_kind.get(holder.kind.label, 0) + holder.size_bytes
    largest = sorted(by_kind.items(), key=lambda item: -item[1])[:MAX_HOLDERS]
    held = ", ".join(f"{kind} {format_bytes(size)}" for kind, size in largest)
    how = "the run as recorded"
    if plan is not None:
        words = [section_words(name, getattr(plan, name.value)) for name in plan.applied]
        how = f"a plan of {', '.join(words)}"
    advised = [one for one in advice_of(run, needs_memory=True) if one.peak_bytes is not None]
    meeting = [one for one in advised if (one.peak_bytes or 0) <= limit_bytes]
    by_hand = ""
    if meeting:
        by_hand = f"; by hand: {min(meeting, key=lambda one: one.step_ns).what}"
    error = InfeasibleError(
        f"no feasible plan: the memory limit of {format_bytes(limit_bytes)} is below the least peak"
        f" that was found, {format_bytes(peak.size_bytes)} on rank {peak.rank} ({held})",
        remedy=f"a limit of {format_bytes(peak.size_bytes)} is met by {how}, with a predicted step"
        f" of {format_ns(timeline.step_ns)}{by_hand}",
    )
    error.result = {
        "memory_limit_bytes": limit_bytes,
        "nearest_peak_bytes": peak.size_bytes,
        "nearest_step_ns": timeline.step_ns,
        "nearest_sections": [] if plan is None else [name.value for name in plan.applied],
        "advice": advised,
    }
    return error
