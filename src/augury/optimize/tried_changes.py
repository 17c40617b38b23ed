"""Changes that are not in a plan: what each would gain by itself, and why it is left out."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from augury.core.errors import AuguryError
from augury.core.plan.plan import PlanSection
from augury.core.plan.sections import AccumulateSection, ShardingSection
from augury.core.results.optimization import Advice, TriedChange
from augury.core.units import format_percent
from augury.optimize.scene_space import SceneSpace
from augury.optimize.search import search
from augury.optimize.section_decisions import ADVISED, NEEDS, TIMED, reasons_against
from augury.passes.sections.registry import SECTION_PASSES
from augury.predict.plan_prediction import with_sections
from augury.predict.plan_summary import section_words
from augury.predict.replays import replay_changed

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from augury.core.plan.plan import Plan
    from augury.optimize.optimize_run import Wanted
    from augury.optimize.search import SearchOptions
    from augury.predict.plan_prediction import PlannedRun

ALONE_SHARE = 0.1
"""Share of the budget to search for the best form of one change by itself."""
NUM_MICRO_BATCHES = (2, 4, 8)
STAGES = (1, 2, 3)


def tried_changes(
    run: PlannedRun,
    plan: Plan | None,
    wanted: Wanted,
    options: SearchOptions,
    *,
    needs_memory: bool,
    dropped: Mapping[PlanSection, str],
) -> list[TriedChange]:
    """Returns the sections that are not in the plan, each with the reason. ``dropped`` has reasons
    of sections that were in it at first."""
    used = () if plan is None else plan.sections
    names = [
        name
        for name in PlanSection
        if name not in (*used, *ADVISED) and (wanted.only is None or name in wanted.only)
    ]
    return [_tried(run, name, wanted, options, needs_memory, dropped) for name in names]


def _tried(
    run: PlannedRun,
    name: PlanSection,
    wanted: Wanted,
    options: SearchOptions,
    needs_memory: bool,
    dropped: Mapping[PlanSection, str],
) -> TriedChange:
    if name is PlanSection.COMMUNICATION:
        reasons = [] if run.case is not None else ["the run's gradients are not known"]
    else:
        reasons = reasons_against(run.scene, name)
    if reasons:
        return _untried(name, f"does not apply: {'; '.join(reasons)}")
    if name is PlanSection.RECOMPUTE:
        missing = "the limit is met without it" if needs_memory else "no memory limit asks for it"
        return _untried(name, f"costs time, and {missing}")
    space = SceneSpace(run, {name}, options=options)
    budget = replace(options, budget_s=ALONE_SHARE * options.budget_s, num_restarts=0)
    done = search(space, options=budget, progress=run.progress)
    if not any(done.best):
        return _untried(name, _why_nothing(run, name, is_complete=done.is_complete))
    step_ns = done.evaluated[done.best].step_ns
    gain_pct = 100 * (1 - step_ns / max(1, run.baseline.step_ns))
    section: Any = space.sections_of(done.best).get(name)
    if (compiled := space.order_of(done.best)) is not None:
        section = compiled.section
    if not wanted.permits(name):
        reason = f"changes numbers of the training; --allow {NEEDS[name]} permits it"
    elif name in dropped:
        reason = dropped[name]
    elif gain_pct <= 100 * run.noise:
        reason = f"gains less than can be measured ({format_percent(100 * run.noise)})"
    else:
        reason = "the plan is as fast without it"
    return TriedChange(
        section=name.value,
        what=section_words(name, section),
        step_ns=step_ns,
        gain_pct=round(gain_pct, 4),
        reason=reason,
    )


def _why_nothing(run: PlannedRun, name: PlanSection, *, is_complete: bool) -> str:
    if not is_complete:
        return "the budget ended before its search"
    if name in TIMED and not run.scene.module_costs.timings:
        return "gains nothing as far as is known; `augury run --calibrate` measures it"
    return "gains nothing in any form"


def _untried(name: PlanSection, reason: str) -> TriedChange:
    return TriedChange(
        section=name.value, what=name.value, step_ns=None, gain_pct=None, reason=reason
    )


def advice_of(run: PlannedRun, *, needs_memory: bool) -> list[Advice]:
    """Returns changes that only the user can make, as far as they gain more than can be measured
    or, where memory is short, save some: those that save most first."""
    forms: list[tuple[PlanSection, Any]] = [
        *(
            (PlanSection.ACCUMULATE, AccumulateSection(num_micro_batches=n))
            for n in NUM_MICRO_BATCHES
        ),
        *((PlanSection.SHARDING, ShardingSection(stage=stage)) for stage in STAGES),
    ]
    baseline_ns = max(1, run.baseline.step_ns)
    baseline_peak = max((peak.size_bytes for peak in run.baseline.peak_memory), default=None)
    found = []
    for name, section in forms:
        if SECTION_PASSES[name].applies(run.scene):
            continue
        try:
            scene = with_sections(run.scene, {name: section})
            timeline = replay_changed(scene.graph)
        except AuguryError:
            continue
        gain = 1 - timeline.step_ns / baseline_ns
        peak = max((one.size_bytes for one in timeline.peak_memory), default=None)
        saves = peak is not None and baseline_peak is not None and peak < baseline_peak
        if gain > run.noise or (needs_memory and saves):
            found.append(
                Advice(
                    section=name.value,
                    what=section_words(name, section),
                    step_ns=timeline.step_ns,
                    gain_pct=round(100 * gain, 4),
                    peak_bytes=peak,
                    lines=SECTION_PASSES[name].advice,
                )
            )
    return sorted(found, key=lambda one: (one.peak_bytes or 0, one.step_ns))
