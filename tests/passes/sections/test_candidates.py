"""Modules that a plan may compile or recompute."""

from __future__ import annotations

from pathlib import Path

import pytest

from augury.core.enums import OpKind
from augury.passes.sections.candidates import alike, candidate_modules
from augury.predict.opened_run import open_source
from tests.passes.sections.trained_graph import (
    BACKWARD_NS,
    FORWARD_NS,
    PARAMETER_BYTES,
    SAVED_BYTES,
    TIMED,
    Trained,
)

GOLDEN = Path(__file__).parents[2] / "golden" / "runs"


@pytest.mark.parametrize("has_layers", [False, True])
def test_times_and_memory_are_those_of_one_step(has_layers: bool) -> None:
    scene = Trained(has_layers_in_forward=has_layers, num_steps=3, timings=TIMED).scene()
    found = {one.path: one for one in candidate_modules(scene)}
    assert list(found) == [path for path, _ in Trained().classes]
    block = found["block.0"]
    assert block.forward_ns == (FORWARD_NS["block.0.a"] + FORWARD_NS["block.0.b"],) * 2
    assert block.backward_ns == (BACKWARD_NS["block.0.a"] + BACKWARD_NS["block.0.b"],) * 2
    assert block.work_ns == block.forward_ns[0] + block.backward_ns[0]
    assert block.saved_bytes == SAVED_BYTES["block.0.a"] + SAVED_BYTES["block.0.b"]
    assert block.parameter_bytes == PARAMETER_BYTES["block.0.a"]
    assert block.class_name == "Block"
    assert block.is_timed
    assert not found["block.0.a"].is_timed
    assert found["Net"].backward_ns[0] == sum(BACKWARD_NS.values())


def test_modules_are_alike_if_class_content_and_parameters_are() -> None:
    groups = alike(candidate_modules(Trained().scene()))
    # The parameters of the two blocks differ in size.
    assert ("block.0",) in groups
    assert ("block.0.b", "block.1.b") in groups
    recorded = open_source(GOLDEN / "buckets-2").scene
    layers = alike(candidate_modules(recorded))
    assert ("1", "3", "5", "7") in layers
    assert sorted(path for group in layers for path in group) == sorted(
        one.path for one in candidate_modules(recorded)
    )


def test_a_graph_without_recorded_modules_has_its_layers() -> None:
    scene = Trained(classes=(), has_layers_in_forward=True).scene()
    found = [one.path for one in candidate_modules(scene)]
    assert set(found) == {"block", "block.0", "block.1", *FORWARD_NS}
    assert (scene.graph.ops.kind == OpKind.FORWARD).any()
