"""A run folder as a Trace: every fact of a run written by hand."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from augury.core.enums import MemoryKind, OpKind, Phase, StepState, StreamKind
from augury.core.errors import InputError
from augury.core.plan.plan_status import TrainingMode, WindowMode
from augury.core.trace.trace import Trace
from augury.core.trace.trace_file import read_trace, write_trace
from augury.core.trace.trace_spec import problems
from augury.ingest.recorded import read_run

from .recorded_plan import DIGEST, PLAN
from .written import BUCKETS, EPOCH_NS, MS, NUM_STEPS, STEP_NS, Run, true_clock


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    return read_run(Run(tmp_path_factory.mktemp("run")).write())


def rows(trace: Trace, *, rank: int, step: int, kind: OpKind | None = None) -> list[int]:
    e = trace.events
    found = np.flatnonzero((e.rank == rank) & (e.step == step))
    return [i for i in found.tolist() if kind is None or e.kind[i] == kind]


def test_the_trace_keeps_its_rules(trace: Trace):
    assert list(problems(trace)) == []
    assert list(trace.ledger) == []
    assert trace.world_size == 2
    assert trace.groups == [[0, 1]]
    assert [facts.host for facts in trace.ranks] == ["one", "two"]
    assert trace.ranks[0].bucket_cap_bytes == 1 << 20


def test_states_of_steps(trace: Trace):
    of_rank = trace.steps.rank == 1
    states = trace.steps.state[of_rank].tolist()
    expected = [StepState.PLAIN] * NUM_STEPS
    expected[0:3] = [StepState.DISTURBED] * 3
    for first, last in ((5, 12), (15, 20)):
        expected[first:last] = [StepState.TIMED] * (last - first)
        expected[first] = expected[last] = StepState.DISTURBED
    expected[22:24] = [StepState.DETAILED] * 2
    expected[24] = StepState.DISTURBED
    assert states == expected


def test_a_step_starts_when_the_recorder_resumes_the_job(trace: Trace):
    starts = trace.steps.start_ns[trace.steps.rank == 0] - EPOCH_NS
    assert starts[5] == 5 * STEP_NS + 3 * MS
    assert starts[6] == 6 * STEP_NS
    assert starts[0] == STEP_NS  # its start was not recorded


def test_cpu_time_is_the_difference_of_two_readings(trace: Trace):
    steps = trace.steps
    of_rank = steps.rank == 0
    assert steps.cpu_ns[of_rank][5:8].tolist() == [60 * MS, 70 * MS, -1]
    assert steps.delay_ns[of_rank][5:8].tolist() == [1 * MS, 0, -1]
    assert steps.helper_cpu_ns[of_rank][5:8].tolist() == [20 * MS, 20 * MS, -1]


def test_phases_and_streams(trace: Trace):
    e = trace.events
    light = rows(trace, rank=0, step=8)
    told = [(trace.name(i), Phase(e.phase[i])) for i in light if e.kind[i] != OpKind.ALL_REDUCE]
    assert told == [
        ("Optimizer.zero_grad#SGD.zero_grad", Phase.UPDATE),
        ("DistributedDataParallel.forward", Phase.FORWARD),
        ("AddmmBackward0", Phase.BACKWARD),
        ("torch::autograd::AccumulateGrad", Phase.BACKWARD),
        ("AddmmBackward0", Phase.BACKWARD),
        ("torch::autograd::AccumulateGrad", Phase.BACKWARD),
        ("Optimizer.step#SGD.step", Phase.UPDATE),
    ]
    kinds = trace.streams.kind[e.stream[light]]
    communicates = e.kind[light] == OpKind.ALL_REDUCE
    assert set(kinds[communicates].tolist()) == {StreamKind.COMMUNICATION}
    assert set(kinds[~communicates].tolist()) == {StreamKind.MAIN_THREAD}


def test_the_optimizers_event_ends_with_the_step(trace: Trace):
    (last,) = (i for i in rows(trace, rank=0, step=8) if "Optimizer.step" in trace.name(i))
    end = trace.events.start_ns[last] + trace.events.dur_ns[last]
    assert end == EPOCH_NS + 8 * STEP_NS


@pytest.mark.parametrize("step", [8, 18, 23])
def test_buckets_have_sizes_and_common_numbers(trace: Trace, step: int):
    e = trace.events
    own, other = (rows(trace, rank=r, step=step, kind=OpKind.ALL_REDUCE) for r in (0, 1))
    assert tuple(e.size_bytes[own].tolist()) == BUCKETS
    assert e.sequence[own].tolist() == e.sequence[other].tolist()
    assert e.group[own].tolist() == [0, 0]
    named = e.sequence[(e.kind == OpKind.ALL_REDUCE) & (e.rank == 0)]
    assert len(set(named.tolist())) == len(named)


def test_arrival_is_the_launch_in_detail(trace: Trace):
    e = trace.events
    for i, at in zip(rows(trace, rank=0, step=23, kind=OpKind.ALL_REDUCE), (52, 72), strict=True):
        assert e.arrival_ns[i] == EPOCH_NS + 22 * STEP_NS + at * MS + 500_000
        assert trace.name(int(e.cause[i])) == "c10d::allreduce_"


def test_order_of_launches_counts_not_order_of_starts(tmp_path: Path):
    """Of two all-reduces on two threads the second may start first, on one rank only."""
    trace = read_run(Run(tmp_path / "run", overtaking=(1,)).write())
    e = trace.events
    for rank, step in itertools.product((0, 1), (8, 23)):
        found = rows(trace, rank=rank, step=step, kind=OpKind.ALL_REDUCE)
        numbers = [int(e.sequence[i]) for i in found]
        in_order = [found[i] for i in np.argsort(numbers)]
        assert [e.size_bytes[i] for i in in_order] == list(BUCKETS)
        assert (np.diff(e.start_ns[in_order]) < 0).item() == (rank == 1)
        assert (np.diff(e.arrival_ns[in_order]) >= 0).all()


def test_arrival_is_before_the_next_node_of_the_main_thread(tmp_path: Path):
    """A bucket that waits behind another was launched long before it starts."""
    run = Run(tmp_path / "run", jitter_ns=lambda *_: 8 * MS)
    trace = read_run(run.write())
    e = trace.events
    first, last = rows(trace, rank=0, step=8, kind=OpKind.ALL_REDUCE)
    begin = EPOCH_NS + 7 * STEP_NS
    assert e.start_ns[first] == begin + 61 * MS
    assert e.arrival_ns[first] == begin + 60 * MS  # the next node starts there
    assert e.arrival_ns[last] == e.start_ns[last]  # no node follows


def test_layers(trace: Trace):
    e = trace.events
    for step in (8, 23):
        nodes = [i for i in rows(trace, rank=0, step=step) if trace.name(i) == "AddmmBackward0"]
        assert [trace.strings[int(e.layer[i])] for i in nodes] == ["last", "first"]
        sums = [i for i in rows(trace, rank=0, step=step) if trace.name(i).endswith("::Accumu")]
        assert sums == []
    forward = [i for i in rows(trace, rank=1, step=23) if trace.name(i) == "aten::linear"]
    assert [trace.strings[int(e.layer[i])] for i in forward] == ["first", "last"]


def test_gradients_memory_calibration(trace: Trace):
    g = trace.gradients
    own = g.rank == 0
    assert [trace.strings[int(n)] for n in g.name[own]] == ["last.weight", "first.weight"]
    assert g.bucket[own].tolist() == [0, 1]
    assert g.size_bytes[own].tolist() == list(BUCKETS)
    assert trace.memory.kind.tolist() == [MemoryKind.PARAMETER] * 2
    (entry,) = trace.calibration
    assert entry.durations_ns == [5000, 5999, 7000]


def test_parents_enclose(trace: Trace):
    e = trace.events
    inner = np.flatnonzero(e.parent >= 0)
    outer = e.parent[inner]
    assert len(inner) > 20
    assert (e.stream[inner] == e.stream[outer]).all()
    assert (e.start_ns[inner] >= e.start_ns[outer]).all()
    assert (e.start_ns[inner] < (e.start_ns + e.dur_ns)[outer]).all()


# -- gaps and contradictions -----------------------------------------------------------------


def changed(folder: Path, change: Callable[[dict[str, Any]], None]) -> Trace:
    trace = read_run(Run(folder, change=change).write())
    assert list(problems(trace)) == []
    return trace


def test_a_missing_rank_is_noted(tmp_path: Path):
    folder = Run(tmp_path / "run").write()
    (folder / "rank-00000.json").unlink()
    trace = read_run(folder)
    assert trace.ledger["missing-rank"].example == "rank 0"
    assert [facts.rank for facts in trace.ranks] == [1]
    assert list(problems(trace)) == []


def test_files_of_two_jobs_are_refused(tmp_path: Path):
    def other_size(record: dict[str, Any]) -> None:
        record["world_size"] = 2 + record["rank"]

    def other_job(record: dict[str, Any]) -> None:
        record["job"] = ("a", "b")[record["rank"]]

    with pytest.raises(InputError, match=r"two jobs: rank 0 was one of 2, rank 1 one of 3"):
        changed(tmp_path / "sizes", other_size)
    with pytest.raises(InputError, match=r"two jobs: ranks 0 and 1 have different job ids"):
        changed(tmp_path / "jobs", other_job)


def test_a_rank_without_a_job_id_belongs_to_the_job(tmp_path: Path):
    trace = changed(
        tmp_path / "run", lambda record: record.update(job="a" if record["rank"] else "")
    )
    assert [facts.rank for facts in trace.ranks] == [0, 1]


def test_records_of_an_earlier_start_are_left_out(tmp_path: Path):
    def change(record: dict[str, Any]) -> None:
        record |= {"job": ("first", "second")[record["rank"]], "start": record["rank"]}

    trace = changed(tmp_path / "run", change)
    assert [facts.rank for facts in trace.ranks] == [1]
    assert trace.ledger["earlier-start"].example == "rank-00000.json"
    assert trace.ledger["missing-rank"].example == "rank 0"


def test_a_folder_without_records(tmp_path: Path):
    with pytest.raises(InputError, match="contains no rank record"):
        read_run(tmp_path)


def test_a_missing_trace_is_noted(tmp_path: Path):
    folder = Run(tmp_path / "run").write()
    (folder / "rank-00001.1.trace.json.gz").unlink()
    trace = read_run(folder)
    assert trace.ledger["unreadable-trace"].count == 1
    assert trace.ledger["unmatched-communication"].count == 10


def test_names_of_traces_stay_in_the_folder(tmp_path: Path):
    def change(record: dict[str, Any]) -> None:
        record["windows"][0]["trace"] = "../rank-00000.0.trace.json.gz"

    with pytest.raises(InputError, match=r"no rank record.*no trace's"):
        changed(tmp_path / "run", change)


def test_a_step_with_more_all_reduces_than_buckets(tmp_path: Path):
    def change(record: dict[str, Any]) -> None:
        record["ddp"][0]["buckets"].append({"size_bytes": 4, "parameters": [0]})

    trace = changed(tmp_path / "run", change)
    assert "odd-reductions" in trace.ledger
    # The shapes of the detail window still tell sizes.
    own = rows(trace, rank=0, step=8, kind=OpKind.ALL_REDUCE)
    assert tuple(trace.events.size_bytes[own].tolist()) == BUCKETS


def test_python_calls_give_group_and_size(tmp_path: Path):
    def change(record: dict[str, Any]) -> None:
        record["ddp"] = []
        record["groups"].append({"name": "pair", "ranks": [1, 0]})
        for step in range(6, 13):
            at = EPOCH_NS + (step - 1) * STEP_NS + 52 * MS
            record["calls"] = [
                *record.get("calls", []),
                [at, at + 12 * MS, "all_reduce", "pair", 1, 64, -1],
                [at + 20 * MS, at + 20 * MS + 9, "all_reduce", "0", 1, 128, -1],
                [at + 21 * MS, at + 22 * MS, "send", "0", 1, 32, 1 - record["rank"]],
                [at + 21 * MS, at + 23 * MS, "recv", "0", 1, 32, 1 - record["rank"]],
            ]

    trace = changed(tmp_path / "run", change)
    e = trace.events
    own = rows(trace, rank=0, step=8, kind=OpKind.ALL_REDUCE)
    assert sorted(e.size_bytes[own].tolist()) == [64, 128]
    assert (e.arrival_ns[own] < e.start_ns[own]).all()
    for rank in (0, 1):
        (sent,) = rows(trace, rank=rank, step=8, kind=OpKind.SEND)
        (got,) = rows(trace, rank=1 - rank, step=8, kind=OpKind.RECV)
        assert e.sequence[sent] == e.sequence[got] >= 0


def test_the_first_version_of_records(tmp_path: Path):
    folder = Run(tmp_path / "run", clocks=(true_clock,), hosts=("one",)).write()
    name = "rank-00000.0.trace.json.gz"
    (folder / name).rename(folder / "rank-00000.trace.json.gz")
    record = json.loads((folder / "rank-00000.json").read_text())
    old = {key: record[key] for key in ("rank", "world_size", "host", "step_end_ns")}
    old |= {"schema_version": 1, "window": [5, 12], "trace": "rank-00000.trace.json.gz"}
    (folder / "rank-00000.json").write_text(json.dumps(old))
    trace = read_run(folder)
    assert rows(trace, rank=0, step=8, kind=OpKind.ALL_REDUCE)
    assert trace.steps.state[7] == StepState.TIMED
    assert list(problems(trace)) == []


def test_the_status_of_a_plan_is_read_and_stored(tmp_path: Path):
    def change(record: dict[str, Any]) -> None:
        record["plan"] = PLAN
        record["windows"][1]["training_mode"] = "planned"
        record["windows"][2] |= {"training_mode": "stock", "trace": None}

    trace = changed(tmp_path / "run", change)
    write_trace(trace, tmp_path / "run")
    for facts in (*trace.ranks, *read_trace(tmp_path / "run").ranks):
        status = facts.plan
        assert status is not None
        assert (status.digest, status.is_followed, status.from_step) == (DIGEST, True, 90)
        assert status.trials[0].winner is TrainingMode.PLANNED
        assert status.trials[0].times[0].interval_pct == (18.5, 21.25)
        assert status.replans[0].step == 300
        # A window without a trace saw nothing.
        assert facts.window_modes == [WindowMode(first=15, last=20, mode=TrainingMode.PLANNED)]


def test_refusals_of_the_runtime_are_untrusted_input(tmp_path: Path):
    trace = changed(tmp_path / "one", lambda record: record.update(refusals=["it is compiled"]))
    assert [facts.refusals for facts in trace.ranks] == [["it is compiled"]] * 2

    def damage(record: dict[str, Any]) -> None:
        if record["rank"] == 1:
            record["refusals"] = ["x" * 100_000]

    assert "unreadable-record" in changed(tmp_path / "two", damage).ledger


def test_a_run_without_a_plan_has_no_plan_status(trace: Trace):
    assert [(facts.plan, facts.window_modes) for facts in trace.ranks] == [(None, [])] * 2
