"""Real trainings on loopback with one injected fault each: the fault is found.

Times are those of a shared machine: tests check which cause is found, not by how much it slows.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import augury
from augury.core.results.diagnosis import Diagnosis
from tests.capture.jobs import record, torchrun
from tests.recordings import once

pytest.importorskip("torch")

TRAINING = Path(__file__).parent / "faulty_training.py"


def diagnosis(
    factory: pytest.TempPathFactory, fault: str, *, num_steps: int = 50, windows: str = "6:14,20:28"
) -> Diagnosis:
    def make(folder: Path) -> str:
        command = torchrun(TRAINING, fault, str(num_steps))
        done = record(folder / "run", command, "--steps", windows)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return augury.open(once(factory, f"faulty-{fault}", make).run).diagnose().result


def check_waterfall(found: Diagnosis) -> None:
    assert found.measured_step_ns is not None
    floor = found.waterfall[-1].step_ns
    assert sum(part.removed_ns for part in found.waterfall) + floor == found.measured_step_ns
    assert all(part.removed_ns > 0 for part in found.waterfall[1:])
    assert floor > 0


def test_a_late_rank_is_the_first_finding(tmp_path_factory: pytest.TempPathFactory) -> None:
    found = diagnosis(tmp_path_factory, "late-rank", num_steps=24, windows="5:10,13:18")
    check_waterfall(found)
    first = found.findings[0]
    assert first.kind.startswith("straggler")
    assert first.where.ranks == [1]
    assert first.gain_pct is not None
    assert first.gain_pct > 10
    assert first.predicted_step_ns is not None
    assert first.predicted_step_ns < found.replayed_step_ns


@pytest.mark.more
@pytest.mark.parametrize(
    ("fault", "kinds"),
    [
        ("loader", ("input",)),
        ("generator", ("input",)),
        ("pause", ("pause",)),
        ("uneven", ("batch-imbalance",)),
        # Under other load the times of short updates do not tell a larger batch from a slow rank.
        ("large-batch", ("batch-imbalance", "straggler-compute")),
    ],
)
def test_injected_faults_are_found_first(
    tmp_path_factory: pytest.TempPathFactory, fault: str, kinds: tuple[str, ...]
) -> None:
    found = diagnosis(tmp_path_factory, fault)
    check_waterfall(found)
    assert found.findings, found.verdict
    assert found.findings[0].kind in kinds, found.findings
