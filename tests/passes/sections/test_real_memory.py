"""Predicted peaks of memory are those that the allocator shows, with and without changes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from augury.core.plan.plan import PlanSection
from augury.core.plan.sections import AccumulateSection, PrecisionSection, RecomputeSection
from augury.passes.protocol import Scene
from augury.passes.sections.registry import SECTION_PASSES
from augury.predict.opened_run import open_source
from augury.replay.run import replay
from tests.capture.jobs import free_port, record, start
from tests.passes.sections.memory_training import BLOCKS

pytest.importorskip("torch")

TRAINING = Path(__file__).with_name("memory_training.py")
CHANGES: dict[str, tuple[PlanSection, Any]] = {
    "recompute": (PlanSection.RECOMPUTE, RecomputeSection(modules=BLOCKS)),
    "half": (PlanSection.PRECISION, PrecisionSection()),
    "2": (PlanSection.ACCUMULATE, AccumulateSection(num_micro_batches=2)),
    "4": (PlanSection.ACCUMULATE, AccumulateSection(num_micro_batches=4)),
}


def command(model: str, change: str, *more: str) -> list[str]:
    return [sys.executable, str(TRAINING), model, change, *more]


def alone() -> dict[str, str]:
    return {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "RANK": "0",
        "WORLD_SIZE": "1",
    }


def measured_bytes(model: str, change: str) -> int:
    done = start(command(model, change, "3", "measure"), **alone())
    assert done.returncode == 0, done.stderr
    return int(done.stdout.split()[-1])


def predicted_bytes(scene: Scene) -> int:
    return replay(scene.graph).peak_memory[0].size_bytes


@pytest.mark.more
@pytest.mark.parametrize("model", ["cnn", "mlp", "transformer"])
def test_peaks_are_within_five_percent(model: str, tmp_path: Path) -> None:
    out = tmp_path / "run"
    done = record(out, command(model, "none", "40"), **alone())
    assert done.returncode == 0, done.stderr
    scene = open_source(out).scene
    predicted = {"none": predicted_bytes(scene)}
    for change, (name, section) in CHANGES.items():
        if change != "recompute" or model == "transformer":
            changed = SECTION_PASSES[name].apply(scene, section)
            predicted[change] = predicted_bytes(changed.scene)
    measured = {change: measured_bytes(model, change) for change in predicted}
    assert predicted == pytest.approx(measured, rel=0.05)
