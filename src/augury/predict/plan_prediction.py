"""Predicts a Plan: all of its sections, applied to a run in their order, and each one left out."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from augury.build.problem.step_parts import NO_GRADIENTS
from augury.build.recorded.without_plan import has_pieces
from augury.core.errors import InputError
from augury.core.plan.plan import (
    Mode,
    Plan,
    PlanSection,
    parameters_digest,
    problem_parameters,
)
from augury.core.units import format_count
from augury.passes.communication_order import order_error
from augury.passes.sections.registry import SECTION_PASSES
from augury.passes.sections.step_structure import step_structure
from augury.predict.prediction import predict_step, representation_of
from augury.predict.replays import Engine, replay_changed, replay_graph
from augury.predict.schedule_case import no_gradients, noise_of, open_case
from augury.schedule.policies.ddp import order_of_buckets

if TYPE_CHECKING:
    from augury.core.graph.graph import Graph
    from augury.core.plan.plan import CommunicationSection, Order
    from augury.core.progress import Progress
    from augury.core.results.prediction import Prediction
    from augury.core.timeline import Timeline
    from augury.costs.prediction_interval import Representation
    from augury.passes.protocol import Changed, Scene
    from augury.predict.opened_run import OpenedRun
    from augury.predict.schedule_case import ScheduleCase

APPLIED = (
    PlanSection.FUSION,
    PlanSection.RECOMPUTE,
    PlanSection.PRECISION,
    PlanSection.THREADS,
    PlanSection.LOADER,
    PlanSection.ACCUMULATE,
    PlanSection.SHARDING,
    PlanSection.COMPRESSION,
    PlanSection.COMMUNICATION,
)
"""The order in which sections are applied: compute before the communication that suits it."""
WITHOUT_PIECES = (PlanSection.FUSION, PlanSection.COMPRESSION)
"""Sections that cannot be applied together with ordered pieces."""


@dataclass(frozen=True, kw_only=True, eq=False)
class PlannedRun:
    """A recorded run that plans are made for and predicted on."""

    scene: Scene
    baseline: Timeline
    """The replay of the recorded graph."""
    represented: Representation | None
    """How well the recorded windows represent the run."""
    case: ScheduleCase | None
    """The case of communication policies; None where the run does not say which gradient travels
    in which bucket."""
    why_no_case: InputError | None = None
    """Why it does not say so, where that is known."""
    run_digest: str
    progress: Progress

    @property
    def num_ranks(self) -> int:
        return self.scene.graph.num_ranks

    @property
    def noise(self) -> float:
        """Relative gain below which no gain can be measured."""
        return noise_of(self.represented)

    @property
    def parameters_digest(self) -> str:
        """Fingerprint of the trained parameters, as in a Plan."""
        found = [] if self.case is None else problem_parameters(self.case.problem)
        return parameters_digest(found)

    def with_order(self, scene: Scene, order: Order, *, is_stock: bool) -> Changed:
        """Returns the change of a scene to gradients that follow an order, by stock DDP's buckets
        or as pieces."""
        if self.case is None or self.case.scheduled is None:
            raise InputError(NO_GRADIENTS, remedy="leave the communication section out")
        return replace(self.case.scheduled, scene=scene).change_to(order, is_stock=is_stock)

    def bound_ns(self, plan: Plan) -> int:
        """Returns the lower bound on the step of any order with the plan's compute."""
        if self.case is None or self.case.scheduled is None:
            return 0
        scene = with_sections(self.scene, _sections_of(plan))
        before = replay_changed(scene.graph, progress=self.progress)
        return self.case.scheduled.with_compute(scene, before).bound_ns

    def predicted(self, timeline: Timeline, model_error: float) -> Prediction:
        return predict_step(
            timeline,
            self.represented,
            baseline_ns=self.baseline.step_ns,
            model_error=model_error,
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class PredictedPlan:
    timeline: Timeline
    prediction: Prediction
    without_ns: dict[PlanSection, int]
    """The step with one section left out."""
    errors: dict[PlanSection, float]
    """Relative standard error of the prediction of each section."""


def open_planned(run: OpenedRun) -> PlannedRun:
    """Opens a run for plans. Raises InputError for a run that followed a plan itself."""
    if run.is_recorded and (
        has_pieces(run.trace)
        or any(facts.plan is not None and facts.plan.is_followed for facts in run.trace.ranks)
    ):
        raise InputError(
            "the run followed a plan, and plans change the stock training",
            remedy="give the run that the plan was made from, or record one without a plan",
        )
    scene = replace(run.scene, structure=step_structure(run.graph))
    baseline = replay_graph(run.graph, progress=run.progress)
    has_gradients = len(run.graph.gradients) > 0
    return PlannedRun(
        scene=scene,
        baseline=baseline,
        represented=representation_of(baseline),
        case=open_case(run) if has_gradients else None,
        why_no_case=None if has_gradients or not run.is_recorded else no_gradients(run.trace),
        run_digest=run.digest if run.is_recorded else "",
        progress=run.progress,
    )


def with_sections(
    scene: Scene,
    sections: Mapping[PlanSection, Any],
    order: tuple[PlanSection, ...] = APPLIED,
    *,
    errors: dict[PlanSection, float] | None = None,
) -> Scene:
    """Returns the scene with all sections but communication applied. ``errors`` takes the relative
    standard error of the prediction of each."""
    for name in order:
        if name in sections and name is not PlanSection.COMMUNICATION:
            one = SECTION_PASSES[name]
            if errors is not None:
                errors[name] = one.error_in(scene, sections[name]).relative
            scene = one.apply(scene, sections[name]).scene
    return scene


def predict_plan(
    run: PlannedRun, plan: Plan, *, engine: Engine = "auto", fold: bool = True
) -> PredictedPlan:
    """Predicts the run under a plan, and with each section left out."""
    _check_fits(run, plan)
    graph, errors = _planned_graph(run, plan)
    timeline = replay_changed(graph, engine=engine, fold=fold, progress=run.progress)
    without_ns = {}
    for name in plan.sections:
        others = _without(plan, name)
        without_ns[name] = run.baseline.step_ns
        if others.sections:
            left, _ = _planned_graph(run, others)
            without_ns[name] = replay_changed(
                left, engine=engine, fold=fold, progress=run.progress
            ).step_ns
    return PredictedPlan(
        timeline=timeline,
        prediction=run.predicted(timeline, math.hypot(*errors.values())),
        without_ns=without_ns,
        errors=errors,
    )


def _planned_graph(run: PlannedRun, plan: Plan) -> tuple[Graph, dict[PlanSection, float]]:
    errors: dict[PlanSection, float] = {}
    scene = with_sections(run.scene, _sections_of(plan), plan.applied, errors=errors)
    if plan.communication is not None:
        order = _order_for(run, plan.communication)
        errors[PlanSection.COMMUNICATION] = order_error(order).relative
        is_stock = plan.communication.mode is Mode.DDP_BUCKETS
        scene = run.with_order(scene, order, is_stock=is_stock).scene
    # The recorded steps measure the run without the plan.
    return scene.graph.evolve(measured=scene.graph.measured.empty()), errors


def _order_for(run: PlannedRun, section: CommunicationSection) -> Order:
    """Returns the order that the runtime follows, with the numbers that this run gives its
    gradients. Of a list of bucket sizes the runtime reads the sizes only."""
    assert run.case is not None
    own = {one.name: place for place, one in enumerate(run.case.problem.gradients)}
    number = [own[gradient.name] for gradient in section.problem.gradients]
    order = section.order
    if section.mode is Mode.DDP_BUCKETS:
        order = order_of_buckets(order.policy, section.problem, section.bucket_caps_bytes)
    pieces = tuple(
        replace(
            piece,
            slices=tuple(replace(part, gradient=number[part.gradient]) for part in piece.slices),
        )
        for piece in order.pieces
    )
    return run.case.as_followed(replace(order, pieces=pieces))


def _sections_of(plan: Plan) -> dict[PlanSection, Any]:
    return {name: getattr(plan, name.value) for name in plan.sections}


def _without(plan: Plan, name: PlanSection) -> Plan:
    kept = tuple(one for one in plan.applied if one is not name)
    left: dict[str, Any] = {name.value: None}
    return replace(plan, **left, applied=kept)


def _check_fits(run: PlannedRun, plan: Plan) -> None:
    """Raises InputError where the plan is for another run, or its sections exclude each other."""
    if plan.num_ranks != run.num_ranks:
        raise InputError(
            f"the plan is for {format_count(plan.num_ranks, 'rank')}, and the run has"
            f" {run.num_ranks}",
            remedy="give the run that the plan was made from",
        )
    if plan.communication is not None and run.case is None:
        raise InputError(NO_GRADIENTS, remedy="leave the communication section out")
    if run.case is not None and plan.parameters_digest != run.parameters_digest:
        raise InputError(
            "the plan is for other parameters than the run has",
            remedy="give the run that the plan was made from",
        )
    for reason in exclusions(plan):
        raise InputError(reason, remedy="leave one of the two out")


def exclusions(plan: Plan) -> list[str]:
    """Returns the reasons why sections of a plan cannot be applied together."""
    section = plan.communication
    if section is None or section.mode is not Mode.PIECES:
        return []
    return [
        f"section {name} cannot be applied together with pieces in order"
        for name in WITHOUT_PIECES
        if name in plan.sections
    ]
