"""Real traces of GPU jobs are imported and matched, or refused if they do not match."""

from __future__ import annotations

import json
import os
import shutil
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from augury.cli.main import main
from augury.core.enums import OpKind, Phase, StreamKind
from augury.core.errors import InputError
from augury.core.trace.trace import Trace
from augury.core.trace.trace_spec import problems
from augury.ingest import open_run
from augury.ingest.foreign_traces import read_foreign
from augury.ingest.import_run import import_run
from augury.ingest.imported import import_traces

TRACES = os.environ.get("AUGURY_TRACES")
real = pytest.mark.skipif(TRACES is None, reason="AUGURY_TRACES is unset: no real traces here")
US = 1_000


def folder(name: str) -> Path:
    return Path(TRACES or "") / name


def ends_ns(trace: Trace) -> list[list[int]]:
    """Ends of each matched collective on the ranks that recorded it."""
    e = trace.events
    ends: dict[tuple[int, int], list[int]] = {}
    for i in np.flatnonzero(e.sequence >= 0).tolist():
        key = int(e.group[i]), int(e.sequence[i])
        ends.setdefault(key, []).append(int(e.start_ns[i] + e.dur_ns[i]))
    return [*ends.values()]


@real
@pytest.mark.parametrize(
    ("name", "num_ranks", "num_matched", "on_fewer_ranks", "median_us"),
    [
        ("dlrm8_v100", 8, 8, [], 10),
        ("torchrec_dlrm4_a", 4, 31, [2], 100),
        ("torchrec_dlrm4_b", 4, 27, [3, 3, 3, 3], 100),
        ("torchrec_resnet18_2", 2, 12, [], 50),
    ],
)
def test_collectives_are_matched(
    name: str, num_ranks: int, num_matched: int, on_fewer_ranks: list[int], median_us: int
):
    """Recordings of some ranks begin later: they lack the first collectives of the others."""
    trace = import_traces([folder(name)])
    assert list(problems(trace)) == []
    assert (len(trace.ranks), trace.world_size) == (num_ranks, num_ranks)
    ends = ends_ns(trace)
    assert sum(len(own) == num_ranks for own in ends) == num_matched
    assert [len(own) for own in ends if len(own) < num_ranks] == on_fewer_ranks
    assert np.median([max(own) - min(own) for own in ends]) < median_us * US
    e = trace.events
    assert not ((e.group >= 0) & (e.sequence < 0)).any()
    assert "unmatched-communication" not in trace.ledger
    assert "restored-communication" not in trace.ledger


@real
@pytest.mark.parametrize(
    ("name", "rank", "world", "kinds"),
    [
        ("nccl_args_a100", 0, 2, {"broadcast": 6, "all_reduce": 15}),
        ("rccl_args_mi300", 0, 8, {"broadcast": 6, "all_reduce": 6}),
        ("scale_v100", 1, 2, {"all_reduce": 2020}),
    ],
)
def test_one_rank_of_several(name: str, rank: int, world: int, kinds: dict[str, int]):
    trace = import_traces([folder(name)])
    assert list(problems(trace)) == []
    assert ([facts.rank for facts in trace.ranks], trace.world_size) == ([rank], world)
    assert trace.ledger["missing-rank"].count == world - 1
    e = trace.events
    counts = np.bincount(e.kind[e.group >= 0])
    assert {OpKind(k).label: n for k, n in enumerate(counts.tolist()) if n} == kinds
    if name != "scale_v100":  # that one has neither arguments nor shapes
        assert (e.size_bytes[e.group >= 0] > 0).all()
        assert trace.groups == [list(range(world))]


@real
def test_device_events_are_linked_to_their_launches():
    trace = import_traces([folder("nccl_args_a100")])
    e = trace.events
    on_device = np.isin(trace.streams.kind[e.stream], [StreamKind.DEVICE, StreamKind.COMMUNICATION])
    launched = on_device & (e.cause >= 0)
    assert launched.sum() > 0.95 * on_device.sum()
    cause = e.cause[launched]
    assert np.isin(e.kind[cause], [OpKind.LAUNCH]).all()
    assert (e.arrival_ns[launched] == e.start_ns[cause]).all()
    assert (e.start_ns[launched] >= e.start_ns[cause]).all()
    phases = set(e.phase[launched & (e.step >= 0)].tolist())
    assert {Phase.FORWARD, Phase.BACKWARD, Phase.UPDATE} <= phases
    assert (e.kind == OpKind.SYNC).sum() > 0
    assert (e.kind == OpKind.COPY).sum() > 0


@real
def test_a_table_of_a_pipeline_parallel_job():
    trace = read_foreign([folder("production_8gpu")])
    assert list(problems(trace)) == []
    assert (len(trace.ranks), trace.world_size) == (8, 8)
    assert len(np.unique(trace.steps.step)) == 32
    e = trace.events
    named = np.stack([e.group, e.sequence], axis=1)[e.sequence >= 0]
    _, counts = np.unique(named, axis=0, return_counts=True)
    # Every send has its receive, every collective both its ranks: four stages, two of each. The
    # norm of all gradients waits for all ranks.
    assert set(counts.tolist()) == {2, 8}
    assert (e.kind == OpKind.SEND).sum() == (e.kind == OpKind.RECV).sum() == 32 * 4 * 2 * 6
    assert [a.name for a in trace.ledger] == ["unknown-operation", "skipped-file"]
    assert trace.ledger["skipped-file"].example.startswith("meta.yaml")


def test_other_tables_are_refused(tmp_path: Path):
    for content in (b"", b"PAR1", b"PAR1" * 100):
        (tmp_path / "trace.parquet").write_bytes(content)
        with pytest.raises(InputError):
            import_traces([tmp_path])


@real
def test_traces_of_two_jobs_are_refused(tmp_path: Path):
    (tmp_path / "rank0.json.gz").symlink_to(folder("torchrec_dlrm4_a") / "rank0.json.gz")
    (tmp_path / "rank1.json.gz").symlink_to(folder("torchrec_dlrm4_b") / "rank1.json.gz")
    with pytest.raises(InputError, match=r"matches those of other ranks: .* s apart"):
        import_traces([tmp_path])


@real
def test_two_traces_of_one_rank_are_refused():
    one = folder("torchrec_resnet18_2") / "rank0.json.gz"
    with pytest.raises(InputError, match="second trace of rank 0"):
        import_traces([one, one])


@real
def test_the_import_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    out = tmp_path / "run"
    source = str(folder("torchrec_resnet18_2"))
    assert main(["import", source, "-o", str(out), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)["result"]
    assert (said["num_ranks"], said["num_steps"], said["num_matched"]) == (2, 3, 12)
    assert open_run(out) == import_traces([folder("torchrec_resnet18_2")])
    assert main(["import", source, "-o", str(out)]) == 2
    assert main(["import", source, "-o", str(out), "--force"]) == 0
    assert "next: augury diagnose" in capsys.readouterr().out


def write_ranks(target: Path, num_ranks: int, num_events: int) -> Path:
    """Ranks that launch one kernel after the other, each on a clock of its own."""
    target.mkdir()
    for rank in range(num_ranks):
        events = [
            {
                **{"ph": "X", "cat": category, "name": f"{name} {i % 50}"},
                **{"pid": 1, "tid": category, "ts": 1000 * rank + 3 * i + late, "dur": 2},
                "args": {"correlation": i + 1},
            }
            for i in range(num_events // 2)
            for category, name, late in (("cuda_runtime", "launch", 0), ("kernel", "gemm", 1))
        ]
        content = {"traceEvents": events, "distributedInfo": {"rank": rank}}
        (target / f"{rank}.json").write_text(json.dumps(content))
    return target


def test_only_one_rank_is_in_memory(tmp_path: Path):
    few, many = (write_ranks(tmp_path / str(n), n, 20_000) for n in (2, 8))

    def peak_bytes(source: Path) -> int:
        tracemalloc.start()
        try:
            import_run([source], tmp_path / f"run-{source.name}")
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak_bytes(few)  # imports of modules
    shutil.rmtree(tmp_path / "run-2")
    assert peak_bytes(many) < 1.2 * peak_bytes(few)
    assert open_run(tmp_path / "run-8") == import_traces([many])


def test_an_import_leaves_no_other_files(tmp_path: Path):
    import_run([write_ranks(tmp_path / "traces", 2, 10)], tmp_path / "run")
    tables = ("allocations", "events", "gradients", "memory", "steps", "streams")
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == [
        *(f"{name}.columns" for name in tables[:4]),
        "run.json",
        *(f"{name}.columns" for name in tables[4:]),
    ]


def test_bad_input_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    out = ["-o", str(tmp_path / "run")]
    empty = tmp_path / "empty"
    empty.mkdir()
    assert main(["import", str(empty), *out]) == 3
    (empty / "rank0.json").write_text('{"traceEvents": []}')
    assert main(["import", str(empty), *out]) == 3
    assert "has no events" in capsys.readouterr().err
    event = {"ph": "X", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 4e18, "dur": 5}
    (empty / "rank0.json").write_text(json.dumps({"traceEvents": [event]}))
    assert main(["import", str(empty), *out]) == 3
    assert "microseconds" in capsys.readouterr().err
    assert main(["import", str(tmp_path / "nothing"), *out]) == 3
    assert main(["import", str(empty), *out, "--clocks", "sundial"]) == 2
    assert not (tmp_path / "run").exists()
