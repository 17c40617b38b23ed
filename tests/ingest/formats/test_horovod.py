"""Horovod timelines become runs whose replay reproduces the recorded steps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from augury.build.recorded.recorded_graph import build_recorded
from augury.core.enums import OpKind
from augury.core.errors import InputError
from augury.core.trace.trace import Trace
from augury.core.trace.trace_spec import problems
from augury.ingest.foreign_traces import read_foreign
from augury.replay.run import replay
from augury.replay.utilization import step_durations_ns
from tests.ingest.formats.horovod_writer import EPOCH_US, HorovodJob


def read(text: str, folder: Path) -> Trace:
    path = folder / "a file of any name"
    path.write_text(text)
    trace = read_foreign([path])
    assert list(problems(trace)) == []
    return trace


def test_fused_tensors_are_one_collective_with_its_size(tmp_path: Path):
    job = HorovodJob()
    trace = read(job.write()[0], tmp_path)
    e = trace.events
    assert trace.world_size == job.num_ranks
    assert trace.ledger["missing-rank"].count == job.num_ranks - 1
    reductions = np.flatnonzero(e.kind == OpKind.ALL_REDUCE)
    assert len(reductions) == job.num_steps * len(job.buffers)
    sizes = {4 * sum(buffer) for buffer in job.buffers}
    assert set(e.size_bytes[reductions].tolist()) == sizes
    assert (e.kind == OpKind.COPY).sum() == job.num_steps * 4
    assert int(e.start_ns.min()) // 1000 >= EPOCH_US
    assert (e.step[e.kind == OpKind.BROADCAST] < 0).all()


@pytest.mark.parametrize("num_steps", [3, 5, 20])
def test_steps_are_the_periods_of_the_gradients(num_steps: int, tmp_path: Path):
    job = HorovodJob(num_steps=num_steps)
    text, ends = job.write()
    trace = read(text, tmp_path)
    measured = (trace.steps.end_ns - trace.steps.start_ns)[1:] / 1000
    assert len(trace.steps) == num_steps
    assert measured == pytest.approx(np.diff(ends)[1:], rel=0.001)


def test_replay_reproduces_the_steps(tmp_path: Path):
    trace = read(HorovodJob(num_steps=8).write()[0], tmp_path)
    steps = step_durations_ns(replay(build_recorded(trace)).rank_steps)
    assert steps == pytest.approx(trace.steps.end_ns - trace.steps.start_ns, rel=0.001)


@pytest.mark.parametrize("kept", [-1, -2, -40, 0.7])
def test_a_timeline_that_was_cut_off_is_read(kept: float, tmp_path: Path):
    text, _ = HorovodJob(num_steps=8).write()
    cut = text[:kept] if isinstance(kept, int) else text[: int(len(text) * kept)]
    trace = read(cut, tmp_path)
    assert len(trace.steps) >= (7 if isinstance(kept, int) else 4)


@pytest.mark.parametrize("text", ['[{"ph": "B", "name": "NEGOTIATE_ALLREDUCE"', "[ NEGOTIATE_X"])
def test_damaged_timelines_are_refused(text: str, tmp_path: Path):
    with pytest.raises(InputError):
        read(text, tmp_path)


def test_two_timelines_are_refused(tmp_path: Path):
    for name in ("one", "two"):
        (tmp_path / name).write_text(HorovodJob().write()[0])
    with pytest.raises(InputError, match="only rank 0"):
        read_foreign([tmp_path])
