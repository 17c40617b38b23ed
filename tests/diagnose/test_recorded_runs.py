"""Diagnoses of small recorded runs of all kinds: DDP, FSDP, pipelines, plans."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import augury
from augury.core.results.diagnosis import Diagnosis
from tests.golden.expected import RUNS

SOON = ("mlp-2", "pipeline-2", "sharded-2", "pieces-2")
EVERY = sorted(path.name for path in RUNS.iterdir() if path.is_dir())


def check(name: str, tmp_path: Path) -> Diagnosis:
    run = tmp_path / name
    shutil.copytree(RUNS / name, run)  # reading leaves files in a run's folder
    found = augury.open(run).diagnose().result
    left = found.measured_step_ns
    assert left is not None
    for part in found.waterfall:
        assert part.step_ns == left - part.removed_ns
        assert part.removed_ns > 0 or part.name == "difference to the replay"
        left = part.step_ns
    assert 0 < left <= found.replayed_step_ns
    for one in found.findings:
        if one.predicted_step_ns is not None and one.gain_pct is not None:
            assert one.gain_pct >= found.noise_pct
            assert one.gain_interval_pct is not None
            assert 0 < one.gain_interval_pct[0] <= one.gain_pct <= one.gain_interval_pct[1]
            # No fix makes steps shorter than their compute.
            assert one.predicted_step_ns >= 0.99 * min(left, found.replayed_step_ns)
    return found


@pytest.mark.parametrize("name", SOON)
def test_diagnoses_are_consistent(name: str, tmp_path: Path) -> None:
    found = check(name, tmp_path)
    is_pipeline = "stage-imbalance" not in found.not_examined
    assert is_pipeline == (name == "pipeline-2")


@pytest.mark.more
@pytest.mark.parametrize("name", [name for name in EVERY if name not in SOON])
def test_diagnoses_of_all_runs_are_consistent(name: str, tmp_path: Path) -> None:
    check(name, tmp_path)
