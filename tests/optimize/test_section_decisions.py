"""Decisions of recorded runs: modules that are alike, exclusions, and names of options."""

from __future__ import annotations

from pathlib import Path

import pytest

from augury.core.errors import UsageError
from augury.core.plan.plan import PlanSection
from augury.optimize.section_decisions import (
    Numerics,
    parse_numerics,
    parse_sections,
    section_decisions,
)
from augury.predict.opened_run import open_source
from tests.optimize.timed_runs import timed


def test_modules_that_are_alike_share_a_decision(tmp_path: Path) -> None:
    scene = open_source(timed("buckets-3", tmp_path / "run", {"compiled": 0.5})).scene
    shared = section_decisions(scene, {PlanSection.FUSION})
    each = section_decisions(scene, {PlanSection.FUSION}, coarsen=False)
    assert len(shared) < len(each)
    assert any(len(one.options[0]) > 1 for one in shared)
    assert all(len(one.options[0]) == 1 for one in each)


def test_a_module_excludes_those_inside_of_it(tmp_path: Path) -> None:
    run = open_source(timed("buckets-3", tmp_path / "run", {"compiled": 0.5}, block=2))
    found = section_decisions(run.scene, {PlanSection.FUSION}, coarsen=False)
    place_of = {one.options[0][0]: place for place, one in enumerate(found)}
    outer, inner = place_of["blocks.0"], place_of["blocks.0.0"]
    assert inner in found[outer].decision.excludes
    assert outer in found[inner].decision.excludes
    assert place_of["blocks.1"] not in found[outer].decision.excludes


def test_heavy_modules_come_first(tmp_path: Path) -> None:
    scene = open_source(timed("buckets-3", tmp_path / "run", {"compiled": 0.5})).scene
    weights = [one.decision.weight_ns for one in section_decisions(scene, {PlanSection.FUSION})]
    assert weights == sorted(weights, reverse=True)
    assert weights[0] > 0


def test_names_of_sections_and_numerics_are_parsed() -> None:
    assert parse_sections(None) is None
    assert parse_sections("fusion, loader") == {PlanSection.FUSION, PlanSection.LOADER}
    assert parse_numerics(["rounding"]) == {Numerics.ROUNDING}
    assert parse_numerics(None) == frozenset()
    for names in ("sharding", "accumulate", "fussion"):
        with pytest.raises(UsageError):
            parse_sections(names)
