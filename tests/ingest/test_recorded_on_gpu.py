"""A run folder that ``augury run`` leaves on GPUs: kernels, launches and NCCL collectives."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from augury.build.recorded.device.device_graph import build_device, has_device
from augury.core.enums import OpKind, Phase, StepState, StreamKind
from augury.core.trace.trace import Trace
from augury.core.trace.trace_spec import problems
from augury.ingest import open_run
from augury.ingest.imported import import_traces
from augury.ingest.recorded import read_run

from .written import BUCKETS, EPOCH_NS, MS, STEP_NS, Run, Shift

TRACES = os.environ.get("AUGURY_TRACES")
real = pytest.mark.skipif(TRACES is None, reason="AUGURY_TRACES is unset: no real traces here")
US = 1_000
COMPUTE, COMMUNICATION = 7, 20
"""Streams of the device."""
LAUNCH_NS, QUEUED_NS = 5 * US, 20 * US
NUM_BEFORE = 3
"""Steps before the window of a real trace."""


class GpuRun(Run):
    """The run of ``written.Run`` with its work on a device and its collectives in NCCL kernels."""

    def _step(self, rank: int, step: int, detailed: bool, clock: Shift) -> list[dict[str, Any]]:
        host = [
            event
            for event in super()._step(rank, step, detailed, clock)
            if not event["name"].startswith("gloo:")
        ]
        begin = EPOCH_NS + (step - 1) * STEP_NS
        events: list[dict[str, Any]] = []

        def add(name: str, cat: str, where: tuple[int, int], start: int, dur: int, **args: Any):
            start_ns = clock(begin + start)
            events.append(
                {
                    **{"ph": "X", "cat": cat, "name": name, "pid": where[0], "tid": where[1]},
                    **{"ts": (start_ns - EPOCH_NS) / 1000},
                    **{"dur": (clock(begin + start + dur) - start_ns) / 1000, "args": args},
                }
            )

        def launch(name: str, stream: int, start: int, dur: int, cat: str = "kernel", **args: Any):
            number = 100 * step + len(events)
            add("cudaLaunchKernel", "cuda_runtime", (7, 1), start, LAUNCH_NS, correlation=number)
            args |= {"correlation": number, "stream": stream}
            add(name, cat, (0, stream), start + QUEUED_NS, dur, **args)

        copy = {"cat": "gpu_memcpy", "bytes": 4096}
        launch("Memcpy HtoD (Pinned -> Device)", COMPUTE, 9 * MS, 1 * MS, **copy)
        for i in range(2):
            launch("sgemm", COMPUTE, 12 * MS + i * 10 * MS, 5 * MS)
            launch("sgemm_backward", COMPUTE, 41 * MS + i * 20 * MS, 8 * MS)
            at = 52 * MS + 510 * US + i * 20 * MS
            add("nccl:all_reduce", "user_annotation", (7, 1), at, 50 * US)
            launch("ncclDevKernel_AllReduce_Sum_f32_RING_LL", COMMUNICATION, at + US, 9 * MS)
        if step in (8, 23):
            # The program's own calls: see ``asked``.
            launch("ncclDevKernel_AllReduce_Sum_f32_RING_LL", COMMUNICATION, 82 * MS, 1 * MS)
            launch("ncclDevKernel_SendRecv", COMMUNICATION, 83 * MS, 1 * MS)
        launch("sgd", COMPUTE, 90 * MS, 30 * MS)  # runs into the next step
        return host + events


def asked(record: dict[str, Any]) -> None:
    """Python's own calls: an all-reduce of another group, and a send with its receive."""
    record["groups"].append({"name": "pair", "ranks": [1, 0], "backend": "nccl"})
    peer = 1 - record["rank"]
    for step in (8, 23):
        at = record["step_end_ns"][step - 2]
        kind = ("send", "recv")[record["rank"]]
        record["calls"] = [
            *record.get("calls", []),
            [at + 82 * MS - US, at + 82 * MS + 9 * US, "all_reduce", "pair", 1, 64, -1],
            [at + 83 * MS - US, at + 83 * MS + 9 * US, kind, "0", 1, 32, peer],
        ]


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    return read_run(GpuRun(tmp_path_factory.mktemp("gpu"), change=asked).write())


def device_rows(trace: Trace, rank: int, step: int) -> list[int]:
    e = trace.events
    on_device = np.char.startswith([trace.strings[int(n)] for n in trace.streams.name], "device")
    return np.flatnonzero(on_device[e.stream] & (e.rank == rank) & (e.step == step)).tolist()


def test_it_opens_without_anomalies(trace: Trace):
    assert list(problems(trace)) == []
    assert list(trace.ledger) == []
    assert trace.groups == [[0, 1]]


def test_device_streams_are_no_threads(trace: Trace):
    streams = {
        (trace.strings[int(name)], StreamKind(kind))
        for name, kind, rank in zip(
            trace.streams.name, trace.streams.kind, trace.streams.rank, strict=True
        )
        if rank == 0
    }
    assert streams == {
        ("main thread", StreamKind.MAIN_THREAD),
        ("device 0 stream 7", StreamKind.DEVICE),
        ("device 0 stream 20", StreamKind.COMMUNICATION),
    }


@pytest.mark.parametrize("step", [8, 23])
def test_kernels_have_step_and_phase_of_their_launch(trace: Trace, step: int):
    e = trace.events
    rows = device_rows(trace, 0, step)
    assert len(rows) == 10
    found = {trace.name(i): (Phase(e.phase[i]), OpKind(e.kind[i])) for i in rows}
    assert found["sgemm"] == (Phase.FORWARD, OpKind.FORWARD)
    assert found["sgd"] == (Phase.UPDATE, OpKind.UPDATE)
    assert found["Memcpy HtoD (Pinned -> Device)"][1] == OpKind.COPY
    for i in rows:
        cause = int(e.cause[i])
        assert trace.name(cause) == "cudaLaunchKernel"
        assert e.kind[cause] == OpKind.LAUNCH
        assert e.arrival_ns[i] == e.start_ns[cause] == e.start_ns[i] - QUEUED_NS
    (last,) = (i for i in rows if trace.name(i) == "sgd")
    assert e.start_ns[last] + e.dur_ns[last] > EPOCH_NS + step * STEP_NS


@pytest.mark.parametrize("step", [9, 18, 24])
def test_kernels_of_nccl_are_the_buckets(trace: Trace, step: int):
    e = trace.events
    of_ranks = [
        [i for i in device_rows(trace, rank, step) if e.kind[i] == OpKind.ALL_REDUCE]
        for rank in (0, 1)
    ]
    for rows in of_ranks:
        assert tuple(e.size_bytes[rows].tolist()) == BUCKETS
        assert e.group[rows].tolist() == [0, 0]
        assert (e.phase[rows] == Phase.BACKWARD).all()
    own, other = (e.sequence[rows].tolist() for rows in of_ranks)
    assert own == other
    assert min(own) >= 0


@pytest.mark.parametrize("step", [8, 23])
def test_calls_find_the_kernels_that_they_launched(trace: Trace, step: int):
    e = trace.events
    for rank, kind in ((0, OpKind.SEND), (1, OpKind.RECV)):
        rows = [i for i in device_rows(trace, rank, step) if e.group[i] >= 0]
        found = [(OpKind(e.kind[i]), int(e.size_bytes[i])) for i in rows]
        reduced = [(OpKind.ALL_REDUCE, size) for size in (*BUCKETS, 64)]
        assert found == [*reduced, (kind, 32)]
        assert (e.sequence[rows] >= 0).all()
    assert ((e.kind == OpKind.SEND) | (e.kind == OpKind.RECV)).sum() == 4


def test_layers_reach_kernels(trace: Trace):
    e = trace.events
    rows = [i for i in device_rows(trace, 1, 23) if trace.name(i) == "sgemm"]
    assert [trace.strings[int(e.layer[i])] for i in rows] == ["first", "last"]


def test_a_graph_can_be_built(trace: Trace):
    assert has_device(trace)
    graph = build_device(trace)
    assert len(graph.ops) > 100


# -- real traces in a run folder ---------------------------------------------------------------


def run_of(folder: Path, sources: list[Path], backend: str = "nccl") -> Path:
    """A run folder with a window over the profiler's steps, and a minimal record of each rank."""
    folder.mkdir()
    for rank, source in enumerate(sources):
        content = json.loads(gzip.decompress(source.read_bytes()))
        base_ns = int(content.get("baseTimeNanoseconds", 0))
        steps = sorted(
            (int(event["name"].partition("#")[2]), event["ts"], event["ts"] + event["dur"])
            for event in content["traceEvents"]
            if event.get("name", "").startswith("ProfilerStep#")
            and event["cat"] == "user_annotation"
        )
        begin_ns = base_ns + round(steps[0][1] * 1000)
        ends_ns = [begin_ns - n * MS for n in reversed(range(NUM_BEFORE))]
        ends_ns += [base_ns + round(end * 1000) for _, _, end in steps]
        name = f"rank-{rank:05d}.0.trace.json.gz"
        (folder / name).write_bytes(source.read_bytes())
        record = {
            "schema_version": 2,
            "rank": rank,
            "world_size": len(sources),
            "host": "one",
            "framework": "torch",
            "windows": [{"first": NUM_BEFORE, "last": len(ends_ns), "trace": name}],
            "step_end_ns": ends_ns,
            "groups": [{"name": "0", "ranks": [*range(len(sources))], "backend": backend}],
        }
        (folder / f"rank-{rank:05d}.json").write_text(json.dumps(record))
    return folder


def device_events(trace: Trace) -> dict[tuple[Any, ...], tuple[int, ...]]:
    """Facts of events on devices within steps, by rank, name, start and duration."""
    e = trace.events
    on_device = np.char.startswith([trace.strings[int(n)] for n in trace.streams.name], "device")
    rows = np.flatnonzero(on_device[e.stream]).tolist()
    return {
        (int(e.rank[i]), trace.name(i), int(e.start_ns[i]), int(e.dur_ns[i])): (
            *(int(column[i]) for column in (e.kind, e.phase, e.size_bytes, e.arrival_ns)),
            int(e.start_ns[e.cause[i]]) if e.cause[i] >= 0 else -1,
            int(trace.streams.kind[e.stream[i]]),
        )
        for i in rows
        if e.step[i] >= 0
    }


@real
@pytest.mark.parametrize(
    ("name", "files", "num_collectives"),
    [
        ("nccl_args_a100", ["*.json.gz", "*.json.gz"], 21),
        ("torchrec_resnet18_2", ["rank0.json.gz", "rank1.json.gz"], 12),
    ],
)
def test_a_recorded_run_is_read_as_an_imported_trace(
    name: str, files: list[str], num_collectives: int, tmp_path: Path
):
    source = Path(TRACES or "") / name
    sources = [next(source.glob(pattern)) for pattern in files]
    folder = run_of(tmp_path / "run", sources)
    trace = open_run(folder)
    assert list(problems(trace)) == []
    assert open_run(folder) == trace
    assert (trace.steps.state == StepState.TIMED).any()
    e = trace.events
    imported = import_traces([source])
    num_ranks = len(imported.ranks)
    own = {k: v for k, v in device_events(trace).items() if k[0] < num_ranks}
    assert own
    assert own == device_events(imported)
    collectives = (e.group >= 0) & (e.rank == 0)
    assert collectives.sum() == num_collectives
    assert (e.sequence[e.group >= 0] >= 0).all()
    for rank in range(2):
        named = np.stack([e.group, e.sequence], axis=1)[(e.group >= 0) & (e.rank == rank)]
        assert len(np.unique(named, axis=0)) == num_collectives
