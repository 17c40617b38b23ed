"""Tables of pipeline-parallel jobs replay as they ran, and changes act as on the simulated job."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from augury.build.recorded.recorded_graph import build_recorded
from augury.core.enums import OpKind
from augury.core.errors import InputError
from augury.core.graph.graph import Graph
from augury.core.trace.trace import Trace
from augury.core.trace.trace_spec import problems
from augury.ingest.formats.pipeline_table import read_pipeline_table
from augury.passes.compute_scale import COMPUTE_SCALE, ComputeFactor
from augury.passes.protocol import Scene
from augury.replay.run import replay
from augury.replay.utilization import step_durations_ns
from tests.ingest.formats.simulated_pipeline import (
    Job,
    numbered,
    simulate,
    step_times,
    write_table,
)

ROUGH = {"jitter": 0.3, "gap_s": 0.004, "pause_s": 0.2, "late_s": 0.05, "slow": {1: 1.6}}
JOBS = {
    "gpipe": Job(schedule="gpipe"),
    "1f1b": Job(),
    "1f1b, rough": Job(**ROUGH),
    "1f1b, eager sends": Job(eager=True, **ROUGH),
    "one stage": Job(num_stages=1, num_replicas=4, **ROUGH),
    "two stages": Job(num_stages=2, num_micro_batches=3, **ROUGH),
    "one replica": Job(num_replicas=1, **ROUGH),
    "steps of very different lengths": Job(growing=3.0, num_steps=4, **ROUGH),
    "interleaved": Job(schedule="interleaved", num_chunks=2),
    "interleaved, rough": Job(schedule="interleaved", num_chunks=3, num_stages=2, **ROUGH),
    "two lanes": Job(num_lanes=2, num_stages=2, **ROUGH),
    "fast network, slow host": Job(transfer_s=1e-5, collective_s=1e-4, gap_s=0.02),
    "slow network": Job(transfer_s=0.08, collective_s=0.5, **ROUGH),
}


def read(rows: list[dict[str, Any]], folder: Path, **options: Any) -> Trace:
    return read_pipeline_table(write_table(rows, folder / "table.parquet", **options))


def replayed_steps(graph: Graph) -> np.ndarray:
    return step_durations_ns(replay(graph).rank_steps) / 1e9


def predicted(trace: Trace) -> np.ndarray:
    assert list(problems(trace)) == []
    return replayed_steps(build_recorded(trace))


def unmatched(trace: Trace) -> int:
    found = [one.count for one in trace.ledger if one.name == "unmatched-communication"]
    return sum(found)


@pytest.mark.parametrize("name", JOBS)
def test_replay_reproduces_each_step(name: str, tmp_path: Path):
    rows = numbered(simulate(JOBS[name]))
    trace = read(rows, tmp_path)
    assert unmatched(trace) == 0
    assert predicted(trace) == pytest.approx(step_times(rows), rel=0.002)
    timeline = replay(build_recorded(trace))
    measured = np.median(step_times(rows))
    assert np.array(timeline.rank_step_ns) / 1e9 == pytest.approx(measured, rel=0.002)


@pytest.mark.parametrize("name", ["1f1b, rough", "interleaved", "interleaved, rough", "two lanes"])
@pytest.mark.parametrize("drop", [("mc", "gmc"), ("gmc",), ("mc", "gmc", "seq_id")])
def test_chunks_and_numbers_may_be_missing(name: str, drop: tuple[str, ...], tmp_path: Path):
    rows = numbered(simulate(JOBS[name]))
    trace = read(rows, tmp_path, drop=drop)
    assert unmatched(trace) == 0
    assert predicted(trace) == pytest.approx(step_times(rows), rel=0.005)


def test_numbers_may_repeat_in_each_chunk(tmp_path: Path):
    rows = numbered(simulate(JOBS["interleaved"]), per_chunk=True)
    trace = read(rows, tmp_path)
    assert unmatched(trace) == 0
    assert predicted(trace) == pytest.approx(step_times(rows), rel=0.002)


@pytest.mark.parametrize("drop", [(), ("mc", "gmc"), ("mc", "gmc", "seq_id")])
def test_messages_that_move_nothing_are_told_apart(drop: tuple[str, ...], tmp_path: Path):
    """Some profilers record a send and a receive for each compute, even at the pipeline's ends."""
    job = JOBS["interleaved"]
    rows = simulate(job)
    last = job.num_chunks * job.num_stages - 1
    for row in list(rows):
        direction, _, what = row["optype"].partition("-")
        ends = (row["gmc"] == 0, row["gmc"] == last)
        if what != "compute" or not any(ends):
            continue
        receives = ends[0] == (direction == "forward")
        at = row["start_ts"] - 2e-5 if receives else row["start_ts"] + row["duration"] + 1e-5
        optype = f"{direction}-{'recv' if receives else 'send'}"
        rows.append(row | {"optype": optype, "start_ts": at, "duration": 1e-5})
    trace = read(numbered(rows), tmp_path, drop=drop)
    assert predicted(trace) == pytest.approx(step_times(rows), rel=0.005)
    e = trace.events
    messages = e.sequence[np.isin(e.kind, [OpKind.SEND, OpKind.RECV]) & (e.dur_ns > 20_000)]
    assert (messages >= 0).all()


@pytest.mark.parametrize("missing", [{3}, {0, 5}, {1, 2, 6}])
def test_ranks_may_be_missing(missing: set[int], tmp_path: Path):
    whole = numbered(simulate(JOBS["1f1b, rough"]))
    rows = [row for row in whole if row["rank"] not in missing]
    trace = read(rows, tmp_path)
    assert trace.ledger["missing-rank"].count == len(missing)
    assert unmatched(trace) > 0
    assert predicted(trace) == pytest.approx(step_times(rows), rel=0.005)


def test_messages_of_a_single_stage_are_no_work_of_the_program(tmp_path: Path):
    """All of its neighbours are missing: its messages are told from none of the stages' ends."""
    rows = [row for row in numbered(simulate(JOBS["1f1b"])) if row["rank"] == 1]
    graph = build_recorded(read(rows, tmp_path))
    assert replayed_steps(graph) == pytest.approx(step_times(rows), rel=0.005)
    assert not (graph.ops.kind == OpKind.OTHER).any()


def test_ranks_may_be_a_part_of_a_larger_world(tmp_path: Path):
    """Only one rank of each tensor-parallel group is in the table."""
    rows = [row | {"rank": 4 * row["rank"]} for row in numbered(simulate(JOBS["1f1b, rough"]))]
    trace = read(rows, tmp_path)
    assert (len(trace.ranks), trace.world_size) == (8, 29)
    assert unmatched(trace) == 0
    assert predicted(trace) == pytest.approx(step_times(rows), rel=0.002)


@pytest.mark.parametrize("share", [0.01, 0.1])
def test_rows_may_be_missing(share: float, tmp_path: Path):
    whole = numbered(simulate(JOBS["1f1b, rough"]))
    kept = np.random.default_rng(1).random(len(whole)) >= share
    rows = [row for row, keep in zip(whole, kept.tolist(), strict=True) if keep]
    assert predicted(read(rows, tmp_path)) == pytest.approx(step_times(rows), rel=0.01)


def test_times_may_be_on_any_clock(tmp_path: Path):
    rows = numbered(simulate(JOBS["1f1b, rough"]))
    expected = predicted(read(rows, tmp_path))
    for shift in (-0.25, 1.7e9):
        moved = [row | {"start_ts": row["start_ts"] + shift} for row in rows]
        assert predicted(read(moved, tmp_path)) == pytest.approx(expected, rel=1e-4)


def test_clocks_of_ranks_may_differ_a_little(tmp_path: Path):
    rows = numbered(simulate(JOBS["1f1b, rough"]))
    rng = np.random.default_rng(2)
    shifts = {rank: rng.uniform(-0.001, 0.001) for rank in range(8)}
    rows = [row | {"start_ts": row["start_ts"] + shifts[row["rank"]]} for row in rows]
    assert predicted(read(rows, tmp_path)) == pytest.approx(step_times(rows), rel=0.01)


def test_pauses_between_operations_are_work(tmp_path: Path):
    """A rank that pauses in the middle of the step delays the others."""
    job = replace(JOBS["1f1b"], jitter=0.0)
    rows = numbered(simulate(job))
    trace = read(rows, tmp_path)
    e = trace.events
    assert "unknown-operation" not in trace.ledger
    rough = numbered(simulate(replace(job, pause_s=0.3)))
    paused = read(rough, tmp_path)
    graph = build_recorded(paused)
    assert paused.ledger["unknown-operation"].example == "gc"
    kinds = graph.ops.kind[[graph.op_name(op) == "gc" for op in range(graph.num_ops)]]
    assert set(kinds.tolist()) == {OpKind.OTHER}
    assert len(e) < len(paused.events)
    assert replayed_steps(graph) == pytest.approx(step_times(rough), rel=0.002)


def test_work_beside_compute_does_not_delay_it(tmp_path: Path):
    """A loader that runs while the model computes is no part of the compute stream."""
    rows = simulate(JOBS["1f1b"])
    loading = [
        row | {"optype": "data-loader", "start_ts": 0.05, "duration": 0.3}
        for row in rows
        if row["optype"] == "optimizer"
    ]
    rows = numbered(rows + loading)
    assert predicted(read(rows, tmp_path)) == pytest.approx(step_times(rows), rel=0.002)


def test_csv_is_the_same_table(tmp_path: Path):
    rows = numbered(simulate(replace(JOBS["1f1b, rough"], num_steps=1)))
    one = read(rows, tmp_path)
    two = read_pipeline_table(write_table(rows, tmp_path / "table.csv"))
    assert one == two


@pytest.mark.parametrize(
    ("job", "ranks", "factor"),
    [
        (Job(jitter=0.1, gap_s=0.001), (2,), 1.5),
        (Job(jitter=0.1, slow={3: 1.5}), (3,), 1 / 1.5),
        (Job(schedule="gpipe", jitter=0.1), (0, 4), 1.4),
        (Job(schedule="interleaved", num_chunks=2, num_stages=2), (1, 3), 1.3),
    ],
)
def test_a_slower_rank_acts_as_on_the_job(
    job: Job, ranks: tuple[int, ...], factor: float, tmp_path: Path
):
    graph = build_recorded(read(numbered(simulate(job)), tmp_path))
    change = ComputeFactor(factor=factor, ranks=ranks)
    changed = COMPUTE_SCALE.apply(Scene.recorded(graph, []), change).scene.graph
    slow = job.slow | {rank: job.slow.get(rank, 1.0) * factor for rank in ranks}
    expected = step_times(simulate(replace(job, slow=slow)))
    assert replayed_steps(changed) == pytest.approx(expected, rel=0.03)


def test_faster_transfers_act_as_on_the_job(tmp_path: Path):
    job = Job(jitter=0.2, transfer_s=0.03, collective_s=0.3)
    graph = build_recorded(read(numbered(simulate(job)), tmp_path))
    columns = dict(graph.ops.columns())
    is_transfer = (graph.ops.kind >= OpKind.ALL_REDUCE) & (graph.ops.kind <= OpKind.PULL)
    columns["work_ns"] = np.where(is_transfer, columns["work_ns"] // 2, columns["work_ns"])
    halved = graph.evolve(ops=type(graph.ops)(**columns))
    expected = step_times(simulate(replace(job, transfer_s=0.015, collective_s=0.15)))
    assert replayed_steps(halved) == pytest.approx(expected, rel=0.03)
    assert (replayed_steps(halved) < replayed_steps(graph)).all()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"rank": 0}, "two places"),
        ({"rank": -1}, "negative"),
        ({"start_ts": 1e12}, "impossible times"),
        ({"duration": 1e5}, "a step of"),
        ({"optype": None}, "missing values"),
        ({"step": "seven"}, "wrong type"),
    ],
)
@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_impossible_tables_are_refused(
    change: dict[str, Any], said: str, suffix: str, tmp_path: Path
):
    rows = numbered(simulate(replace(JOBS["1f1b"], num_steps=1)))
    if change == {"step": "seven"}:
        rows = [row | {"step": str(row["step"])} for row in rows]
    rows[-1] |= change
    path = write_table(rows, tmp_path / f"table.{suffix}")
    with pytest.raises(InputError, match=said):
        read_pipeline_table(path)


def test_a_table_without_a_needed_column_is_refused(tmp_path: Path):
    rows = numbered(simulate(replace(JOBS["1f1b"], num_steps=1)))
    with pytest.raises(InputError, match="no column stage"):
        read(rows, tmp_path, drop=("stage",))
