"""Predictions of plans with several sections, and of plans with one of them left out."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from augury.core.errors import InputError
from augury.core.plan.plan import Plan, PlanSection
from augury.core.plan.sections import (
    AccumulateSection,
    CompressionSection,
    FusionSection,
    LoaderSection,
    PrecisionSection,
    RecomputeSection,
    ShardingSection,
    ThreadsSection,
)
from augury.predict.opened_run import open_source
from augury.predict.plan_prediction import (
    APPLIED,
    PlannedRun,
    exclusions,
    open_planned,
    predict_plan,
    with_sections,
)
from augury.predict.plan_summary import section_words, summarize_plan
from tests.optimize.timed_runs import RUNS, timed


@pytest.fixture
def planned(tmp_path: Path) -> PlannedRun:
    ratios = {"compiled": 0.6, "bfloat16": 0.8, "compiled+bfloat16": 0.5}
    return open_planned(open_source(timed("buckets-3", tmp_path / "run", ratios)))


def plan_for(run: PlannedRun, **sections: object) -> Plan:
    names = [PlanSection(name) for name in sections]
    return Plan(
        num_ranks=run.num_ranks,
        parameters_digest=run.parameters_digest,
        applied=tuple(name for name in APPLIED if name in names),
        **{"communication": None, **sections},  # type: ignore[arg-type]
    )


def test_sections_are_applied_together_and_left_out_one_by_one(planned: PlannedRun) -> None:
    fusion, precision = FusionSection(modules=("0", "2")), PrecisionSection()
    both = predict_plan(planned, plan_for(planned, fusion=fusion, precision=precision))
    only_fusion = predict_plan(planned, plan_for(planned, fusion=fusion))
    only_precision = predict_plan(planned, plan_for(planned, precision=precision))
    assert both.without_ns == {
        PlanSection.FUSION: only_precision.timeline.step_ns,
        PlanSection.PRECISION: only_fusion.timeline.step_ns,
    }
    assert only_fusion.without_ns == {PlanSection.FUSION: planned.baseline.step_ns}
    least_ns = min(only_fusion.timeline.step_ns, only_precision.timeline.step_ns)
    assert both.timeline.step_ns < least_ns < planned.baseline.step_ns


def test_errors_of_sections_add_up_in_the_interval(planned: PlannedRun) -> None:
    plan = plan_for(planned, fusion=FusionSection(modules=("0",)), compression=CompressionSection())
    found = predict_plan(planned, plan)
    assert found.prediction.model_error == pytest.approx(math.hypot(*found.errors.values()))
    assert found.prediction.interval_ns is not None
    alone = predict_plan(planned, plan_for(planned, compression=CompressionSection()))
    assert alone.prediction.interval_ns is not None
    wide, narrow = (
        high / low for low, high in (found.prediction.interval_ns, alone.prediction.interval_ns)
    )
    assert wide >= narrow


def test_sections_apply_in_the_order_of_the_plan(planned: PlannedRun) -> None:
    fusion, precision = FusionSection(modules=("0",)), PrecisionSection()
    plan = plan_for(planned, fusion=fusion, precision=precision)
    turned = replace(plan, applied=tuple(reversed(plan.applied)))
    first, second = predict_plan(planned, plan), predict_plan(planned, turned)
    assert first.timeline.step_ns == pytest.approx(second.timeline.step_ns, rel=0.02)


def test_a_plan_with_unknown_modules_is_refused(planned: PlannedRun) -> None:
    with pytest.raises(InputError, match="no module"):
        predict_plan(planned, plan_for(planned, fusion=FusionSection(modules=("encoder.9",))))


def test_a_plan_for_another_number_of_ranks_is_refused(planned: PlannedRun) -> None:
    plan = replace(plan_for(planned, precision=PrecisionSection()), num_ranks=16)
    with pytest.raises(InputError, match="16 ranks"):
        predict_plan(planned, plan)


def test_advised_sections_can_be_predicted_too(planned: PlannedRun) -> None:
    errors: dict[PlanSection, float] = {}
    scene = with_sections(
        planned.scene,
        {PlanSection.ACCUMULATE: AccumulateSection(num_micro_batches=2)},
        errors=errors,
    )
    assert errors[PlanSection.ACCUMULATE] > 0
    assert scene.graph.num_ops == planned.scene.graph.num_ops


def test_a_run_without_gradients_takes_sections_but_no_order() -> None:
    run = open_planned(open_source(RUNS / "pipeline-2"))
    assert run.case is None
    found = predict_plan(run, plan_for(run, precision=PrecisionSection()))
    assert found.timeline.step_ns > 0


def test_every_section_has_words(planned: PlannedRun) -> None:
    sections = {
        "fusion": FusionSection(modules=("0",)),
        "recompute": RecomputeSection(modules=("0", "2")),
        "precision": PrecisionSection(),
        "compression": CompressionSection(),
        "loader": LoaderSection(num_workers=2),
        "threads": ThreadsSection(num_threads=1),
        "accumulate": AccumulateSection(num_micro_batches=4),
        "sharding": ShardingSection(stage=1),
    }
    words = {section_words(PlanSection(name), one) for name, one in sections.items()}
    assert len(words) == len(sections)
    assert "1 compiled module" in words
    plan = plan_for(planned, fusion=sections["fusion"])
    result = summarize_plan(planned, plan, predict_plan(planned, plan))
    assert result.changes == ["1 compiled module"]
    assert result.baseline_step_ns == planned.baseline.step_ns
    assert exclusions(plan) == []
