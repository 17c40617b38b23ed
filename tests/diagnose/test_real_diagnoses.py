"""Real trainings on loopback with one injected fault each: the fault is found.

Times are those of a shared machine: tests check which cause is found, not by how much it slows.
Other load on the machine is a cause, too, and a true one; it is not counted here.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import augury
from augury.core.results.diagnosis import Diagnosis, Finding
from tests.capture.jobs import record, torchrun
from tests.recordings import once

pytest.importorskip("torch")

TRAINING = Path(__file__).parent / "faulty_training.py"


ATTEMPTS = 3


def undisturbed(factory: pytest.TempPathFactory, fault: str) -> Diagnosis:
    """Records again where other load on the machine took the cores: it hides the injected fault."""
    for attempt in range(ATTEMPTS):
        found = diagnosis(factory, fault, attempt=attempt)
        if "core-contention" not in [one.kind for one in found.findings]:
            break
    return found


def diagnosis(
    factory: pytest.TempPathFactory,
    fault: str,
    *,
    num_steps: int = 50,
    windows: str = "6:14,20:28",
    attempt: int = 0,
) -> Diagnosis:
    def make(folder: Path) -> str:
        command = torchrun(TRAINING, fault, str(num_steps))
        done = record(folder / "run", command, "--steps", windows)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return augury.open(once(factory, f"faulty-{fault}-{attempt}", make).run).diagnose().result


def check_waterfall(found: Diagnosis) -> None:
    assert found.measured_step_ns is not None
    floor = found.waterfall[-1].step_ns
    assert sum(part.removed_ns for part in found.waterfall) + floor == found.measured_step_ns
    assert all(part.removed_ns > 0 for part in found.waterfall[1:])
    assert floor > 0


def injected(found: Diagnosis, fault: str) -> list[Finding]:
    """Returns the findings without those that other load on the machine causes."""
    of_load = {"core-contention", "drift"} | ({"pause"} if fault != "pause" else set())
    return [one for one in found.findings if one.kind not in of_load]


def test_a_late_rank_is_the_first_finding(tmp_path_factory: pytest.TempPathFactory) -> None:
    found = diagnosis(tmp_path_factory, "late-rank", num_steps=24, windows="5:10,13:18")
    check_waterfall(found)
    first = injected(found, "late-rank")[0]
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
    found = undisturbed(tmp_path_factory, fault)
    check_waterfall(found)
    causes = injected(found, fault)
    assert causes, found.verdict
    assert causes[0].kind in kinds, found.findings
