"""Rows of applied plans: the realised step next to the predicted one, and each part's share."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from augury.core.plan.plan import Plan
from augury.core.plan.plan_file import load_plan
from benchmarks.validate.measured import of_record
from benchmarks.validate.optimize_job import OPTIMIZED, PAIRS, PLAN, PLANNED, RUN, has_no_trial
from benchmarks.validate.optimize_settings import PlanCase
from benchmarks.validate.rows import Row
from benchmarks.validate.tried_plan import (
    TriedPlan,
    applied_sections,
    kept_mode,
    parts_pct,
    plan_status,
    tried_plan,
)

SUITE = "optimize"
PLAN_KIND = "plan"


@dataclass(frozen=True, slots=True, kw_only=True)
class AppliedPlan:
    """A plan in the jobs that followed it."""

    whole: TriedPlan
    kept: TriedPlan
    """The mode of training that the trial kept."""
    sections: tuple[str, ...]
    parts_pct: dict[str, float]
    """The gain that is lost without a section, in points, where a trial left it out."""


def optimized(folder: Path) -> dict[str, Any]:
    """Returns the answer of ``augury optimize`` with the trouble in getting it, and the share of
    the recorded step in which compute waits for communication."""
    found: dict[str, Any] = json.loads((folder / OPTIMIZED).read_text())
    return found


def row_of(case: PlanCase, folder: Path) -> Row:
    """Returns the row of a case. The plan was followed by a later job than the recorded one: the
    measured gain is applied to the recorded job's step, so that drift between the two is no error
    of the prediction."""
    plan = load_plan(folder / PLAN) if (folder / PLAN).exists() else None
    applied = applied_plan(folder) if plan is not None else None
    predicted = plan.prediction if plan is not None else None
    baseline_ns = of_record(folder / RUN).plain.step_ns
    trouble = optimized(folder)["trouble"]
    if applied is None:
        trouble = trouble or "no plan was followed"
    return Row(
        suite=SUITE,
        case=case.name,
        kind=PLAN_KIND,
        measured_ns=None if applied is None else round(baseline_ns * applied.whole.ratio),
        predicted_ns=None if predicted is None else predicted.step_ns,
        interval_ns=None if predicted is None else predicted.interval_ns,
        noise_pct=None if applied is None else applied.whole.noise_pct,
        num_steps=None if applied is None else applied.whole.num_steps,
        baseline_ns=baseline_ns,
        predicted_gain_pct=None if predicted is None else predicted.gain_pct,
        sections=() if applied is None else applied.sections,
        predicted_parts_pct={} if plan is None else predicted_parts(plan),
        measured_parts_pct={} if applied is None else applied.parts_pct,
        trouble=trouble,
    )


def predicted_parts(plan: Plan) -> dict[str, float]:
    """Returns the predicted gain that is lost without a section, in points."""
    predicted = plan.prediction
    if predicted is None:
        return {}
    return {
        name.value: round(
            100 * (predicted.without_ns[name] - predicted.step_ns) / predicted.baseline_ns, 2
        )
        for name in plan.applied
        if name in predicted.without_ns
    }


def applied_plan(folder: Path) -> AppliedPlan | None:
    """Returns the plan as the jobs of this folder applied it; None if no job did."""
    if has_no_trial(folder / PLAN):
        return _in_pairs(folder)
    whole, kept = tried_plan(folder / PLANNED), kept_mode(folder / PLANNED)
    if whole is None or kept is None:
        return None
    return AppliedPlan(
        whole=whole,
        kept=kept,
        sections=applied_sections(folder / PLANNED),
        parts_pct=parts_pct(folder / PLANNED),
    )


def refused_sections(folder: Path) -> list[str]:
    """Returns the sections of the plan that the job did not apply, with its reasons. A trial that
    drops a section is no refusal."""
    planned = next((run for run in sorted(folder.glob(f"{PLANNED}*")) if run.is_dir()), None)
    status = plan_status(planned) if planned is not None else None
    if status is None:
        return []
    if status.reason is not None:
        return [status.reason]
    applied = applied_sections(planned) if planned is not None else ()
    return [
        f"{one.section}: {one.reason}"
        for one in status.sections
        if not one.is_applied and one.section.value not in applied and one.reason is not None
    ]


def _in_pairs(folder: Path) -> AppliedPlan | None:
    """Returns the plan as whole jobs followed it, each next to a job without it. The difference
    between the two pairs is the noise."""
    runs = [folder / f"{kind}-{number}" for number, kind in enumerate(PAIRS)]
    sections = applied_sections(next(run for run in runs if run.name.startswith("planned")))
    if not sections:
        return None
    steps = [of_record(run).plain for run in runs]
    ratios = [
        steps[PAIRS.index("planned", begin, begin + 2)].step_ns
        / steps[PAIRS.index("default", begin, begin + 2)].step_ns
        for begin in range(0, len(PAIRS), 2)
    ]
    ratio = fmean(ratios)
    tried = TriedPlan(
        ratio=ratio,
        noise_pct=100 * (max(ratios) - min(ratios)) / ratio,
        num_steps=sum(
            one.num_steps for one, kind in zip(steps, PAIRS, strict=True) if kind == "planned"
        ),
    )
    return AppliedPlan(whole=tried, kept=tried, sections=sections, parts_pct={})
