"""Diagnoses of traces that others recorded agree with what is known about them."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import pytest

import augury
from augury.core.results.diagnosis import Diagnosis

TRACES = os.environ.get("AUGURY_TRACES")
pytestmark = pytest.mark.skipif(TRACES is None, reason="AUGURY_TRACES is unset: no real traces")

SETS = (
    "dlrm8_v100",
    "torchrec_dlrm4_a",
    "torchrec_dlrm4_b",
    "torchrec_resnet18_2",
    "nccl_args_a100",
    "rccl_args_mi300",
    "scale_v100",
    "production_8gpu",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("imported")


@cache
def diagnosed(name: str, folder: Path) -> Diagnosis:
    assert TRACES is not None
    files = [path for path in sorted((Path(TRACES) / name).iterdir()) if path.suffix != ".yaml"]
    run = folder / name
    augury.import_traces(files, run, engine="serial")
    return augury.open(run).diagnose().result


@pytest.mark.parametrize("name", SETS)
def test_waterfalls_add_up_and_removals_shorten_the_step(name: str, folder: Path) -> None:
    found = diagnosed(name, folder)
    left = found.measured_step_ns
    assert left is not None
    for part in found.waterfall:
        assert part.step_ns == left - part.removed_ns
        assert part.removed_ns > 0 or part.name == "difference to the replay"
        left = part.step_ns
    assert 0 < left < found.replayed_step_ns


def test_the_stage_with_the_output_layer_is_the_slow_one(folder: Path) -> None:
    """Its last stage computes 1.4 times as long as the mean."""
    found = diagnosed("production_8gpu", folder)
    first = found.findings[0]
    assert found.bound == "pipeline"
    assert (first.kind, first.where.ranks, first.where.layers) == (
        "stage-imbalance",
        [6, 7],
        ["stage 3"],
    )
    assert "pipeline-bubble" in [one.kind for one in found.findings]


@pytest.mark.parametrize("name", ["dlrm8_v100", "torchrec_resnet18_2"])
def test_runs_whose_devices_idle_are_bound_by_their_hosts(name: str, folder: Path) -> None:
    """Their streams are busy for less than a tenth of the step."""
    found = diagnosed(name, folder)
    assert found.bound == "host"
    assert found.findings[0].kind == "launch-bound"
    assert found.findings[0].evidence[0].value < 10


def test_steps_that_vary_threefold_leave_little_to_report(folder: Path) -> None:
    found = diagnosed("torchrec_dlrm4_a", folder)
    assert found.noise_pct == 5, "the most that counts as noise"
    for one in found.findings:
        assert one.gain_pct is None or one.gain_pct > found.noise_pct
        assert one.gain_interval_pct is None or one.gain_interval_pct[0] > 0


@pytest.mark.parametrize("name", ["nccl_args_a100", "scale_v100"])
def test_the_floor_is_the_busiest_stream_where_the_host_hides_communication(
    name: str, folder: Path
) -> None:
    """Their transfers and the waits for a rank without a record are hidden behind the host."""
    found = diagnosed(name, folder)
    assert found.bound == "host"
    busy = found.findings[0].evidence[0]
    assert busy.name == "busy share of the busiest stream"
    busy_ns = busy.value / 100 * found.replayed_step_ns
    assert busy_ns <= found.waterfall[-1].step_ns < 1.1 * busy_ns


def test_a_host_that_runs_ahead_of_its_device_does_not_limit_the_step(folder: Path) -> None:
    """Its host launches two steps ahead; one rank of eight waits for the others."""
    found = diagnosed("rccl_args_mi300", folder)
    assert found.bound == "communication"
    assert "launch-bound" not in [one.kind for one in found.findings]
