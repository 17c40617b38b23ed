"""Graphs of runs on devices, compared with real traces from other sources."""

import os
from pathlib import Path

import numpy as np
import pytest

from augury.build.recorded.recorded_graph import build_recorded
from augury.core.enums import OpKind, ResourceKind
from augury.core.trace.trace import Trace
from augury.ingest.imported import import_traces
from augury.replay.run import replay

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


def _recorded_ends_ns(trace: Trace) -> dict[tuple[int, int], int]:
    """End of the last event of each rank's step, relative to the start of the first step."""
    events, begin = trace.events, int(trace.steps.start_ns.min())
    ends: dict[tuple[int, int], int] = {}
    for rank, step, start, dur in zip(
        events.rank.tolist(),
        events.step.tolist(),
        events.start_ns.tolist(),
        events.dur_ns.tolist(),
        strict=True,
    ):
        if step >= 0:
            ends[rank, step] = max(ends.get((rank, step), 0), start + dur - begin)
    return ends


@pytest.mark.parametrize("name", SETS)
def test_every_rank_ends_its_steps_when_it_really_did(name: str):
    trace = _trace(name)
    graph = build_recorded(trace)
    timeline = replay(graph)
    real = _recorded_ends_ns(trace)
    horizon = max(real.values())
    steps = timeline.rank_steps
    for rank, step, end in zip(
        steps.rank.tolist(), steps.step.tolist(), steps.end_ns.tolist(), strict=True
    ):
        assert abs(end - real[rank, step]) < 0.05 * horizon, (rank, step)


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
