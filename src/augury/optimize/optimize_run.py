"""Finds the best plan of a recorded run: the search, its prediction, the reasons."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from augury.core.errors import UsageError
from augury.core.measured_step import measured_step_ns
from augury.core.plan.plan import Plan, PlanPrediction, PlanSection
from augury.core.plan.plan_spec import verify_plan
from augury.core.progress import silent
from augury.core.results.optimization import OptimizeResult, SearchEffort
from augury.core.units import format_percent, parse_bytes
from augury.executor import EngineName, Executor
from augury.optimize.combination import Combined, combine
from augury.optimize.doubtful_sections import Doubt, without_doubts
from augury.optimize.infeasible import infeasible
from augury.optimize.search import Found, SearchOptions, parse_budget_s
from augury.optimize.section_decisions import (
    ADVISED,
    NEEDS,
    TIMED,
    Numerics,
    parse_numerics,
    parse_sections,
)
from augury.optimize.space import Objective
from augury.optimize.tried_changes import advice_of, tried_changes
from augury.predict.plan_prediction import PlannedRun, PredictedPlan, open_planned
from augury.predict.plan_summary import ledger_of, shares

if TYPE_CHECKING:
    from augury.core.timeline import Timeline
    from augury.predict.opened_run import OpenedRun

LEAST_SHARE = 0.25
"""Share of the budget that a search without a doubtful section has at least."""
MEMORY_MARGIN = 0.05
"""Share of a memory limit that plans leave free: predicted peaks may be that far off."""


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
    target = None if limit is None else round(limit * (1 - MEMORY_MARGIN))
    objective = Objective(memory_limit_bytes=target)
    baseline_peak = _peak_bytes(planned.baseline)
    if target is not None and baseline_peak is None:
        raise UsageError(
            "the run has no record of memory, so no limit can be checked",
            remedy="record it again with `augury run`, or leave --memory-limit out",
        )
    needs_memory = target is not None and (baseline_peak or 0) > target
    sections = wanted.sections(needs_memory=needs_memory)
    begun_s = time.monotonic()
    combined = combine(planned, sections, objective, options)
    if not objective.is_feasible(combined.evaluated):
        raise infeasible(planned, limit or 0, combined, margin=MEMORY_MARGIN)

    def combine_again(others: frozenset[PlanSection]) -> Combined:
        left_s = options.budget_s - (time.monotonic() - begun_s)
        again = replace(options, budget_s=max(left_s, LEAST_SHARE * options.budget_s))
        return combine(planned, others, objective, again)

    certain = without_doubts(
        sections,
        combine_again,
        lambda one: _doubts(planned, one.predicted, needs_memory=needs_memory),
        is_feasible=lambda one: objective.is_feasible(one.evaluated),
        first=combined,
        kept=frozenset({PlanSection.RECOMPUTE}),  # is there for memory
    )
    combined, dropped = certain.combination, certain.left_out
    plan, predicted, found = combined.plan, combined.predicted, combined.found
    if plan is not None and predicted is not None and planned.case is not None:
        plan = replace(
            plan,
            memory_limit_bytes=limit if needs_memory else None,
            prediction=_prediction(planned, plan, predicted),
        )
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
        measured_step_ns=measured_step_ns(planned.baseline.graph),
        baseline_step_ns=planned.baseline.step_ns,
        predicted_step_ns=timeline.step_ns,
        interval_ns=None if predicted is None else predicted.prediction.interval_ns,
        gain_pct=round(gain_pct, 4),
        noise_pct=round(100 * planned.noise, 4),
        can_pay=can_pay,
        baseline_peak_bytes=baseline_peak,
        peak_bytes=_peak_bytes(timeline),
        memory_limit_bytes=limit,
        memory_target_bytes=target,
        memory_margin_pct=100 * MEMORY_MARGIN,
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Start:
    """One of several searches that differ in their seed."""

    run: OpenedRun
    wanted: Wanted
    options: SearchOptions


def optimize(
    run: OpenedRun,
    *,
    memory_limit: int | str | None = None,
    allow: str | Sequence[str] | None = None,
    only: str | Sequence[str] | None = None,
    budget: float | str = 60.0,
    seed: int = 0,
    starts: int = 1,
    engine: EngineName = "processes",
    address: str | None = None,
    jobs: int | None = None,
) -> Optimized:
    """Parses options of ``augury optimize``, and returns the best outcome of the searches, which
    differ in their seeds and run at the same time where the engine has the workers."""
    wanted = Wanted(
        memory_limit_bytes=_limit_bytes(memory_limit),
        allowed=parse_numerics(allow),
        only=parse_sections(only),
    )
    options = SearchOptions(budget_s=parse_budget_s(budget), seed=seed)
    if starts == 1:
        return optimize_run(run, wanted, options)
    quiet = replace(run, progress=silent)
    found = Executor(engine=engine, address=address, jobs=jobs).run(
        _optimize_start,
        [
            _Start(run=quiet, wanted=wanted, options=replace(options, seed=seed + number))
            for number in range(starts)
        ],
        work="searching",
        describe=lambda one: f"seed {one.options.seed}",
        progress=run.progress,
    )
    return min(found, key=lambda one: (not one.result.can_pay, one.result.predicted_step_ns))


def _optimize_start(start: _Start) -> Optimized:
    return optimize_run(start.run, start.wanted, start.options)


def _limit_bytes(limit: int | str | None) -> int | None:
    """Parses a memory limit, such as ``8GiB``."""
    found = parse_bytes(limit) if isinstance(limit, str) else limit
    if found is not None and found < 1:
        raise UsageError("a memory limit of no bytes", remedy="give a size above 0, such as 8GiB")
    return found


def _check(wanted: Wanted) -> None:
    for name in wanted.only or ():
        if not wanted.permits(name):
            raise UsageError(
                f"section {name} changes the numbers of the training",
                remedy=f"allow it: --allow {NEEDS[name]}",
            )


def _doubts(run: PlannedRun, predicted: PredictedPlan | None, *, needs_memory: bool) -> list[Doubt]:
    """Returns doubts about sections whose gain is smaller than the error of its prediction or than
    the noise of the run. Where a combination as a whole gains less than the noise and is not
    needed, no plan pays, and it is shown as it is."""
    if predicted is None:
        return []
    baseline_ns = max(1, run.baseline.step_ns)
    step_ns = predicted.timeline.step_ns
    can_pay = needs_memory or 1 - step_ns / baseline_ns > run.noise
    has_times = bool(run.scene.module_costs.timings)
    measure = "a longer `--calibrate-seconds`" if has_times else "`augury run --calibrate`"
    found = []
    for name, without_ns in predicted.without_ns.items():
        gain = (without_ns - step_ns) / baseline_ns
        error = predicted.errors[name]
        gains = f"gains {format_percent(100 * gain)} in the best combination, less than"
        if gain < error:
            hint = f"; {measure} measures it" if name in TIMED else ""
            off = f"the error of its prediction ({format_percent(100 * error)}){hint}"
            found.append(Doubt(section=name, missing=error - gain, reason=f"{gains} {off}"))
        elif gain < run.noise and can_pay:
            off = f"can be measured ({format_percent(100 * run.noise)})"
            found.append(Doubt(section=name, missing=run.noise - gain, reason=f"{gains} {off}"))
    return found


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
