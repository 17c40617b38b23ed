"""The best combination of some sections, as a plan with its prediction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from augury.core.plan.plan import Plan, PlanSection
from augury.optimize.prune import pruned
from augury.optimize.scene_space import SceneSpace
from augury.optimize.search import Found, SearchOptions, search
from augury.optimize.space import Candidate, Evaluated, Objective
from augury.predict.plan_prediction import APPLIED, PlannedRun, PredictedPlan, predict_plan


@dataclass(frozen=True, kw_only=True, eq=False)
class Combined:
    """The best combination of some sections."""

    found: Found
    evaluated: Evaluated
    plan: Plan | None
    predicted: PredictedPlan | None

    @property
    def step_ns(self) -> int:
        """The step that the search found."""
        return self.evaluated.step_ns


def combine(
    run: PlannedRun,
    sections: frozenset[PlanSection],
    objective: Objective,
    options: SearchOptions,
) -> Combined:
    has_limit = objective.memory_limit_bytes is not None
    space = SceneSpace(run, sections, options=options, has_limit=has_limit)
    found = search(space, objective=objective, options=options, progress=run.progress)
    plan = _plan(run, space, pruned(space, objective, found))
    return Combined(
        found=found,
        evaluated=found.evaluated[found.best],
        plan=plan,
        predicted=None if plan is None else predict_plan(run, plan),
    )


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
