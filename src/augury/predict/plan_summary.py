"""Predicted plans in words and as results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from augury.build.problem.step_parts import NO_GRADIENTS, NO_GRADIENTS_REMEDY
from augury.core.enums import OpKind
from augury.core.ledger import Ledger, Severity
from augury.core.plan.plan import Mode, PlanSection
from augury.core.results.optimization import PlanReplayResult, SectionShare
from augury.core.units import format_bytes, format_count
from augury.predict.plan_prediction import open_planned, predict_plan
from augury.predict.prediction import warnings_of
from augury.predict.summarize import summarize_change

if TYPE_CHECKING:
    from augury.core.plan.plan import Plan
    from augury.core.timeline import Timeline
    from augury.predict.opened_run import OpenedRun
    from augury.predict.plan_prediction import PlannedRun, PredictedPlan
    from augury.predict.replays import Engine

MAX_CAPS = 4
"""Sizes of buckets that a description lists."""


def replay_plan(
    run: OpenedRun, plan: Plan, *, engine: Engine = "auto", fold: bool = True
) -> tuple[PlanReplayResult, Timeline]:
    """Predicts a run under a plan."""
    planned = open_planned(run)
    predicted = predict_plan(planned, plan, engine=engine, fold=fold)
    return summarize_plan(planned, plan, predicted), predicted.timeline


def summarize_plan(run: PlannedRun, plan: Plan, predicted: PredictedPlan) -> PlanReplayResult:
    """Returns the prediction of a plan as a result."""
    found = summarize_change(
        predicted.timeline,
        predicted.prediction,
        changes=[section_words(name, getattr(plan, name.value)) for name in plan.applied],
        ledger=ledger_of(run).merged(warnings_of(run.represented)),
    )
    fields = {name: getattr(found, name) for name in found.__struct_fields__}
    return PlanReplayResult(**fields, sections=shares(run, plan, predicted))


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


def section_words(name: PlanSection, section: Any) -> str:
    """Describes a section in a few words."""
    match name:
        case PlanSection.COMMUNICATION:
            return _communication_words(section)
        case PlanSection.FUSION:
            return f"{format_count(len(section.modules), 'compiled module')}"
        case PlanSection.RECOMPUTE:
            return f"{format_count(len(section.modules), 'recomputed module')}"
        case PlanSection.PRECISION:
            return f"autocast to {section.dtype}"
        case PlanSection.COMPRESSION:
            return f"gradients travel as {section.dtype}"
        case PlanSection.LOADER:
            return (
                f"{format_count(section.num_workers, 'loader worker')},"
                f" {section.prefetch_factor} batches ahead each"
            )
        case PlanSection.THREADS:
            return f"{format_count(section.num_threads, 'thread')} per rank"
        case PlanSection.ACCUMULATE:
            return f"{format_count(section.num_micro_batches, 'micro-batch', 'micro-batches')}"
        case PlanSection.SHARDING:
            return f"ZeRO stage {section.stage}"


def _communication_words(section: Any) -> str:
    if section.mode is Mode.DDP_BUCKETS:
        caps = ", ".join(format_bytes(cap) for cap in section.bucket_caps_bytes[:MAX_CAPS])
        more = ", ..." if len(section.bucket_caps_bytes) > 4 else ""
        return f"DDP's buckets of {caps}{more}"
    number = sum(piece.op is not OpKind.ALL_GATHER for piece in section.order.pieces)
    return f"{format_count(number, 'piece')} in order ({section.order.policy})"


def ledger_of(run: PlannedRun) -> Ledger:
    """Returns the warnings about predictions of plans of this run."""
    ledger = Ledger() if run.case is None else Ledger().merged(run.case.ledger)
    if run.case is None:
        why = run.why_no_case
        cause = NO_GRADIENTS if why is None else why.cause
        ledger.note(
            "no-gradients",
            f"{cause}: communication stays as recorded",
            severity=Severity.WARNING,
            remedy=NO_GRADIENTS_REMEDY if why is None else why.remedy,
        )
    return ledger
