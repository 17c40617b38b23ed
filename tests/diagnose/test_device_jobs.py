"""Diagnoses and what-ifs of generated jobs on devices, whose causes are known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import augury
from augury.api import Run
from augury.cli.main import main
from augury.core.errors import InputError
from augury.core.graph.graph import NONE, Buffers
from augury.costs.collective_costs import fit_network
from augury.replay.run import replay
from tests.ingest.synthetic_jobs import Job
from tests.ingest.trace_variants import write_set
from tests.passes.applied import change_ranks


def opened(job: Job, folder: Path) -> Run:
    run = folder / "run"
    augury.import_traces([write_set(job.files(), folder / "traces")], run, engine="serial")
    return augury.open(run)


def test_stages_of_a_pipeline_are_no_stragglers(tmp_path: Path):
    run = opened(Job(pipeline=True, has_phases=True), tmp_path)
    not_examined = run.diagnose().result.not_examined
    assert "straggler-compute" in not_examined
    assert "stage-imbalance" not in not_examined


@pytest.mark.parametrize(
    ("loader", "confidence"),
    [(Job.loader, "high"), ("", "medium")],
    ids=["known loader", "unknown loader"],
)
def test_hosts_that_load_data_launch_fast_enough(tmp_path: Path, loader: str, confidence: str):
    job = Job(has_phases=True, imbalance=0.02, loading_us=15_000.0, loader=loader)
    found = opened(job, tmp_path).diagnose().result
    assert found.bound == "input"
    assert [(one.kind, one.confidence) for one in found.findings] == [("input", confidence)]
    measured_ns = found.measured_step_ns
    assert measured_ns is not None
    assert found.findings[0].gain_pct == pytest.approx(100 * 15e6 / measured_ns, abs=1.0)


@pytest.mark.parametrize(
    "job",
    [
        Job(),
        Job(is_blocking=False),
        Job(imbalance=3.0, num_layers=20),
        Job(transfer_us=3_000.0),
        Job(pipeline=True),
    ],
    ids=["blocking", "at the end", "uneven", "slow", "pipeline"],
)
def test_overlap_hides_no_compute(tmp_path: Path, job: Job):
    run = opened(job, tmp_path)
    step_ns = run.whatif(perfect_overlap=True).result.predicted_step_ns
    assert job.num_layers * job.layer_us * 1_000 < step_ns <= run.replay().result.predicted_step_ns


def test_new_ranks_hold_the_memory_of_those_that_they_copy(tmp_path: Path):
    """Also what is held from before the recording, or beyond its end."""
    graph = opened(Job(num_ranks=2), tmp_path).graph
    own = np.flatnonzero(graph.ops.rank == 1)
    ends = [(NONE, NONE), (NONE, own[0]), (own[3], NONE), (own[1], own[5])]
    taken, given = np.array(ends, dtype=np.int32).T
    count = len(ends)
    graph = graph.evolve(
        buffers=Buffers(
            rank=np.full(count, 1, dtype=np.int32),
            size_bytes=10 ** np.arange(count, dtype=np.int64),
            kind=np.zeros(count, dtype=np.uint8),
            taken_by=taken,
            given_by=given,
            later=np.zeros(count, dtype=np.uint8),
            layer=np.full(count, NONE, dtype=np.int32),
        )
    )
    more, _ = change_ranks(graph, fit_network(graph), 4)
    assert np.count_nonzero(more.buffers.rank == 3) == count
    peaks = {peak.rank: peak.size_bytes for peak in replay(more).peak_memory}
    assert set(peaks) == {1, 3}
    assert peaks[1] == peaks[3]


@pytest.mark.parametrize("is_blocking", [True, False])
def test_more_and_fewer_ranks(tmp_path: Path, is_blocking: bool):
    """Transfers of one size count as wire time, which grows by 2 (n - 1) / n around a ring."""
    job = Job(num_ranks=2, num_layers=1, imbalance=0.0, jitter_us=0.0, is_blocking=is_blocking)
    run = opened(job, tmp_path)
    step_ns = run.replay().result.predicted_step_ns
    transfer_ns = 1_000 * job.transfer_us * 1.1
    for num_ranks in (3, 8):
        more = run.whatif(ranks=num_ranks).result
        assert more.num_ranks == num_ranks
        added_ns = (2 * (num_ranks - 1) / num_ranks - 1) * transfer_ns
        assert more.predicted_step_ns - step_ns == pytest.approx(added_ns, rel=0.02)
    alone_ns = run.whatif(ranks=1).result.predicted_step_ns
    assert step_ns - alone_ns == pytest.approx(transfer_ns, rel=0.02)


def test_a_rate_needs_sizes(tmp_path: Path):
    """Transfers of unknown size say nothing about the bandwidth: a network of any rate would seem
    to be faster."""
    with pytest.raises(InputError, match="bandwidth of the graph's links is unknown"):
        opened(Job(has_sizes=False), tmp_path).whatif(bandwidth="1Gbit/s")


def test_two_jobs_differ_in_the_phase_that_takes_longer(tmp_path: Path):
    """Ranges of torch's profiler around whole steps have no phase."""
    before, after = (
        opened(Job(has_phases=True, imbalance=0.02, loading_us=loading_us), tmp_path / name)
        for name, loading_us in (("before", 5_000.0), ("after", 15_000.0))
    )
    first = before.diff(after).result.phase_changes[0]
    assert first.name == "data"
    assert (first.before_ns, first.after_ns) == pytest.approx((5e6, 15e6), rel=0.01)


def test_a_gain_without_a_plan_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    files = Job(has_phases=True, imbalance=0.02, transfer_us=3_000.0).files()
    for event in (event for content in files.values() for event in content["traceEvents"]):
        for key in {"In msg nelems", "Out msg nelems"} & event["args"].keys():
            event["args"][key] = 10_000_000
    augury.import_traces([write_set(files, tmp_path / "traces")], tmp_path / "run")
    run, plan = str(tmp_path / "run"), tmp_path / "plan.json"
    assert main(["optimize", run, "--allow", "compression", "-o", str(plan)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "but a plan for it cannot be written" in said
    assert "pays off" not in said
    assert not plan.exists()
