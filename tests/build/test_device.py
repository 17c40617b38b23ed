"""Graphs of runs on devices, compared with real traces from other sources."""

import os
from pathlib import Path

import numpy as np
import pytest

from augury.build.recorded.recorded_graph import build_recorded
from augury.core.enums import OpKind, ResourceKind
from augury.core.trace.trace import Trace
from augury.ingest.imported import import_traces
from augury.predict.summarize import summarize
from augury.replay.run import replay
from augury.replay.utilization import step_durations_ns

TRACES = os.environ.get("AUGURY_TRACES")

pytestmark = pytest.mark.skipif(
    not TRACES, reason="AUGURY_TRACES does not name the folder of traces"
)

SETS = (
    "dlrm8_v100",
    "torchrec_dlrm4_a",
    "torchrec_dlrm4_b",
    "torchrec_resnet18_2",
    "nccl_args_a100",
    "rccl_args_mi300",
)


def _trace(name: str) -> Trace:
    assert TRACES is not None
    return import_traces([Path(TRACES) / name])


def _recorded_end_ns(trace: Trace) -> int:
    """End of the last event that a step launched, relative to the start of the first step."""
    events, steps = trace.events, trace.steps
    ends = {
        (rank, step): end
        for rank, step, end in zip(
            steps.rank.tolist(), steps.step.tolist(), steps.end_ns.tolist(), strict=True
        )
    }
    last = max(
        start + dur
        for rank, step, launch, start, dur in zip(
            events.rank.tolist(),
            events.step.tolist(),
            events.arrival_ns.tolist(),
            events.start_ns.tolist(),
            events.dur_ns.tolist(),
            strict=True,
        )
        if launch <= ends.get((rank, step), -1)
    )
    return last - int(steps.start_ns.min())


@pytest.mark.parametrize("name", SETS)
def test_the_replay_of_every_rank_meets_its_measured_step(name: str):
    trace = _trace(name)
    timeline = replay(build_recorded(trace))
    result = summarize(timeline)
    assert result.error_pct is not None
    assert abs(result.error_pct) < 1
    for rank in result.ranks:
        assert rank.error_pct is not None
        assert abs(rank.error_pct) < 1
    assert timeline.makespan_ns == pytest.approx(_recorded_end_ns(trace), rel=0.01)


@pytest.mark.parametrize("name", SETS)
def test_every_step_of_every_rank_takes_as_long_as_it_did(name: str):
    graph = build_recorded(_trace(name))
    timeline = replay(graph)
    measured = graph.measured
    for rank in range(len(graph.ranks)):
        steps = timeline.rank_steps.of_rank(rank)
        own = measured.rank == rank
        assert steps.step.tolist() == measured.step[own].tolist()
        assert step_durations_ns(steps) == pytest.approx(measured.dur_ns[own], rel=0.03)


@pytest.mark.parametrize("name", SETS)
def test_the_measured_step_is_that_of_the_profiler_if_the_program_waits_for_its_device(name: str):
    trace = _trace(name)
    graph = build_recorded(trace)
    if any(
        graph.op_name(op) == "step ends" and graph.ops.kind[op] == OpKind.MARK
        for op in np.flatnonzero(graph.ops.kind == OpKind.MARK).tolist()
    ):
        assert name in ("rccl_args_mi300", "scale_v100")
        return
    steps = trace.steps
    spans_ns = steps.end_ns - steps.start_ns
    assert graph.measured.dur_ns == pytest.approx(spans_ns, rel=0.002)


@pytest.mark.parametrize("name", ["torchrec_resnet18_2", "dlrm8_v100"])
def test_kernels_wait_for_their_launches_and_collectives_for_all_ranks(name: str):
    trace = _trace(name)
    graph = build_recorded(trace)
    timeline = replay(graph)
    on_device = graph.resources.kind[graph.ops.resource] == ResourceKind.COMPUTE
    launched = 0
    for op in np.flatnonzero(on_device & (graph.ops.resource >= 0)).tolist():
        for before in graph.predecessors.of(op).tolist():
            if graph.ops.kind[before] == OpKind.LAUNCH:
                launched += 1
                assert timeline.start_ns[op] >= timeline.end_ns[before]
    assert launched > 0.8 * on_device.sum()
    assert graph.num_gangs > 0
    sizes = np.diff(graph.gang_members.first)
    assert (sizes == trace.world_size).all()


def test_no_time_of_a_busy_device_is_unexplained():
    graph = build_recorded(_trace("torchrec_resnet18_2"))
    measured = graph.measured
    assert measured.explained_ns.sum() > 0.97 * measured.dur_ns.sum()
