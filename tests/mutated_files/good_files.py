"""Good files of every format, small, made once and kept in memory."""

from __future__ import annotations

import gzip
import json
import tempfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from tests.mutated_files.mutate import Original

NUM_STEPS = 2
"""Steps of each window: files are small, so that many can be read."""


@dataclass(frozen=True)
class GoodFiles:
    """The files of one folder by name. One of the ``targets`` is mutated at a time."""

    files: Mapping[str, bytes]
    targets: tuple[str, ...]
    seal: Callable[[Mapping[str, bytes], str, bytes], dict[str, bytes]] | None = None
    """Adapts checksums in other files to the mutated one; returns the changed files."""
    originals: dict[str, Original] = field(default_factory=dict)

    def original(self, name: str) -> Original:
        return self.originals.setdefault(name, Original(self.files[name]))


def _one(name: str, content: bytes) -> GoodFiles:
    return GoodFiles({name: content}, (name,))


@cache
def _run() -> dict[str, bytes]:
    """A recorded run of two ranks with a timed and a detailed window, by name of file."""
    from tests.ingest.recorded_plan import PLAN
    from tests.ingest.written import EPOCH_NS, STEP_NS, Run

    with tempfile.TemporaryDirectory() as scratch:
        folder = Run(Path(scratch)).write()
        files = {path.name: path.read_bytes() for path in folder.iterdir()}
    for rank in range(2):
        name = f"rank-{rank:05d}.json"
        record = json.loads(files[name])
        record["calls"] = [[EPOCH_NS + 10**9, EPOCH_NS + 2 * 10**9, "send", "0", 1, 8, 0]]
        record["plan"] = PLAN
        kept = []
        for window in record["windows"]:
            if window["first"] == 15:
                del files[window["trace"]]
                continue
            window["last"] = window["first"] + NUM_STEPS
            trace = json.loads(gzip.decompress(files[window["trace"]]))
            end_us = (window["last"] * STEP_NS + STEP_NS // 2) / 1000
            trace["traceEvents"] = [e for e in trace["traceEvents"] if e["ts"] < end_us]
            files[window["trace"]] = gzip.compress(json.dumps(trace).encode(), 1)
            kept.append(window)
        record["windows"] = kept
        files[name] = json.dumps(record).encode()
    return files


def recorded() -> list[GoodFiles]:
    files = _run()
    own = [name for name in files if name.startswith("rank-00001")]
    return [GoodFiles(files, tuple(sorted(own)))]


def summarized() -> list[GoodFiles]:
    files = {name: content for name, content in _run().items() if name.endswith(".json")}
    place = {"gathered.json": json.dumps({"host": "one", "folder": "/data/run"}).encode()}
    files |= place | _talk(packed=True)
    return [GoodFiles(files, tuple(sorted(files)))]


def kineto() -> list[GoodFiles]:
    """Traces of CPU jobs (gzipped), of one GPU job with names of groups, and of one without."""
    run = _run()
    on_cpu = {f"rank{rank}.json.gz": run[f"rank-{rank:05d}.2.trace.json.gz"] for rank in range(2)}
    found = [GoodFiles(on_cpu, ("rank1.json.gz",))]
    for has_groups in (True, False):
        files = {
            f"rank{rank}.json": json.dumps(gpu_trace(rank, has_groups=has_groups)).encode()
            for rank in range(2)
        }
        found.append(GoodFiles(files, ("rank1.json",)))
    alone = json.dumps(gpu_trace(0, has_groups=True)).encode()
    found.append(_one("rank0.json.gz", gzip.compress(alone, 1)))
    return found


def gpu_trace(rank: int, *, has_groups: bool) -> dict[str, Any]:
    """Two steps of a training on a device: launches, kernels, copies and NCCL collectives."""
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": "thread_name", "pid": 7, "tid": 1, "args": {"name": "python"}},
        {"ph": "M", "name": "process_name", "pid": 0, "tid": 0, "args": {"name": "GPU 0"}},
    ]
    launched = 100

    def add(name: str, category: str, ts: float, dur: float, tid: int | str, **args: Any) -> None:
        pid = 0 if category in ("kernel", "gpu_memcpy") else 7
        events.append(
            {"ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid}
            | {"ts": ts, "dur": dur, "args": args}
        )

    def launch(name: str, ts: float, dur: float, stream: int, **args: Any) -> None:
        nonlocal launched
        launched += 1
        ids = {"correlation": launched, "External id": launched}
        add("cudaLaunchKernel", "cuda_runtime", ts, 3, 1, **ids)
        own = {"device": 0, "stream": stream, **ids, **args}
        category = "gpu_memcpy" if name.startswith("Memcpy") else "kernel"
        add(name, category, ts + 8, dur, stream, **own)

    for step in range(NUM_STEPS):
        begin = 1_000.0 + 500 * step + 7 * rank
        add(f"ProfilerStep#{step + 3}", "user_annotation", begin, 490, 1)
        sequence = {"Sequence number": 10 * step, "External id": 50 + step}
        add("aten::linear", "cpu_op", begin + 10, 60, 1, **sequence)
        launch("sgemm", begin + 20, 50, 7)
        launch("Memcpy HtoD (Pinned -> Device)", begin + 30, 5, 7, bytes=4096)
        add(
            "autograd::engine::evaluate_function: AddmmBackward0",
            "cpu_op", begin + 100, 80, 2, **sequence, **{"Fwd thread id": 1},
        )  # fmt: skip
        launch("sgemm_backward", begin + 120, 60, 7)
        facts: dict[str, Any] = {"Collective name": "allreduce", "In msg nelems": 1000}
        facts |= {"Out msg nelems": 1000, "dtype": "Float", "Group size": 2}
        if has_groups:
            facts |= {"Process Group Name": "0", "Process Group Ranks": "[0, 1]", "Seq": step}
        launch("ncclDevKernel_AllReduce_Sum_f32", begin + 200, 90, 20, **facts)
        add("cudaStreamWaitEvent", "cuda_runtime", begin + 260, 2, 1, correlation=900 + step)
        add("Optimizer.step#SGD.step", "user_annotation", begin + 300, 60, 1)
        launch("multi_tensor_apply", begin + 310, 40, 7)
        add("cudaDeviceSynchronize", "cuda_runtime", begin + 380, 90, 1)
        for at, address, change, held in ((15, 512, 4096, 5096), (150, 512, -4096, 1000)):
            place = {"Device Type": 1, "Device Id": 0, "Addr": address, "Bytes": change}
            totals = {"Total Allocated": held, "Total Reserved": 8192}
            events.append(
                {"ph": "i", "name": "[memory]", "pid": 7, "tid": 1, "ts": begin + at}
                | {"args": place | totals}
            )
    found: dict[str, Any] = {"schemaVersion": 1, "traceEvents": events, "host_name": "one"}
    found["baseTimeNanoseconds"] = 1_790_000_000_000_000_000
    found["deviceProperties"] = [{"id": 0, "totalGlobalMem": 16384}]
    if has_groups:
        groups = [{"pg_name": "0", "ranks": [0, 1], "backend_config": "cuda:nccl"}]
        found["distributedInfo"] = {"backend": "nccl", "rank": rank, "world_size": 2}
        found["distributedInfo"]["pg_config"] = groups
    return found


@cache
def pipeline_table() -> list[GoodFiles]:
    import io

    import polars

    kinds = (
        "forward-recv", "forward-compute", "forward-send", "backward-recv", "backward-compute",
        "backward-send", "grads-reduce-scatter", "optimizer", "params-all-gather",
    )  # fmt: skip
    rows = [
        {"dp_rank": rank // 2, "stage": rank % 2, "rank": rank, "step": step, "optype": kind}
        | {"start_ts": 0.01 * place + 0.001 * rank, "duration": 0.009, "seq_id": place}
        for rank in range(4)
        for step in range(2)
        for place, kind in enumerate(kinds)
    ]
    file = io.BytesIO()
    polars.DataFrame(rows).write_parquet(file)
    text = polars.DataFrame(rows).write_csv().encode()
    return [_one("operations.parquet", file.getvalue()), _one("operations.csv", text)]


@cache
def horovod() -> list[GoodFiles]:
    from tests.ingest.formats.horovod_writer import HorovodJob

    text, _ = HorovodJob(num_ranks=2, num_steps=NUM_STEPS + 1, broadcasts=1).write()
    return [_one("timeline.json", text.encode())]


@cache
def execution_traces() -> list[GoodFiles]:
    """One with times, and one that completes the trace of the profiler beside it."""
    from tests.ingest.formats.execution_trace_writer import execution_trace, kineto_trace

    files = {f"rank{rank}.json": kineto_trace(rank) for rank in range(2)}
    files |= {f"rank{rank}_et.json": execution_trace() for rank in range(2)}
    alone = execution_trace(has_times=True, rank=0)
    return [
        GoodFiles(files, ("rank1_et.json", "rank1.json")),
        _one("linked.json.gz", gzip.compress(alone, 1)),
    ]


@cache
def containers() -> list[GoodFiles]:
    """Traces of both ranks in an archive, in an object, in a list, and by labels of processes."""
    import io
    import zipfile

    from tests.ingest.formats.test_recognition import encoded, events_of, trace_of

    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        for rank in range(2):
            packed.writestr(f"rank{rank}.json", encoded(trace_of(rank, rank)))
    labels = [
        {"ph": "M", "name": "process_labels", "pid": f"r{rank}", "args": {"labels": f"rank {rank}"}}
        for rank in range(2)
    ]
    events = [event for rank in range(2) for event in events_of(rank, f"r{rank}")]
    return [
        _one("traces.zip", archive.getvalue()),
        _one("parts.json", encoded({f"rank{rank}": trace_of(None, rank) for rank in range(2)})),
        _one("list.json", encoded([trace_of(rank, rank) for rank in range(2)])),
        _one("events.json", encoded(labels + events)),
    ]


@cache
def cached_trace() -> list[GoodFiles]:
    from augury.core.trace.trace_file import write_trace
    from augury.ingest.recorded import read_run

    with tempfile.TemporaryDirectory() as scratch:
        source, out = Path(scratch, "source"), Path(scratch, "out")
        source.mkdir()
        out.mkdir()
        for name, content in _run().items():
            (source / name).write_bytes(content)
        write_trace(read_run(source), out)
        files = {path.name: path.read_bytes() for path in out.iterdir()}
    return [GoodFiles(files, tuple(sorted(files)), seal=_seal_trace)]


def _seal_trace(files: Mapping[str, bytes], name: str, content: bytes) -> dict[str, bytes]:
    """Lets ``run.json`` state the checksums of the columns of a mutated table."""
    from augury.core.trace.table_file import SUFFIX, _places
    from augury.core.trace.trace_file import _TABLES

    if not name.endswith(SUFFIX):
        return {}
    head = json.loads(files["run.json"])
    stated = head["tables"][name.removesuffix(SUFFIX)]
    rows = stated["num_rows"]
    for column, dtype, offset in _places(_TABLES[name.removesuffix(SUFFIX)], rows):
        stated["crc32"][column] = zlib.crc32(content[offset : offset + rows * dtype.itemsize])
    return {"run.json": json.dumps(head).encode()}


def wire() -> list[GoodFiles]:
    found = []
    for packed in (False, True):
        files = _talk(packed=packed)
        found.append(GoodFiles(files, tuple(sorted(files))))
    return found


def _talk(*, packed: bool) -> dict[str, bytes]:
    from tests.ingest.wire_written import Talk

    talk = Talk(num_slots=64)
    for size in (4096, 100_000):
        for src in (0, 1):
            talk.send_framed(src, size)
    with tempfile.TemporaryDirectory() as scratch:
        folder = talk.write(Path(scratch), packed=packed)
        return {path.name: path.read_bytes() for path in folder.iterdir()}


def _saved(name: str, save: Callable[[Path], None]) -> GoodFiles:
    with tempfile.TemporaryDirectory() as scratch:
        save(Path(scratch, name))
        return _one(name, Path(scratch, name).read_bytes())


def graph() -> list[GoodFiles]:
    from augury.core.graph.graph_file import save_graph
    from tests.core.test_graph_file import small_graph

    return [_saved("run.augury", lambda path: save_graph(small_graph(), path))]


def plan() -> list[GoodFiles]:
    from augury.core.plan.plan_file import save_plan
    from tests.core.test_plan_file import PLAN

    return [_saved("plan.json", lambda path: save_plan(PLAN, path))]


def problem() -> list[GoodFiles]:
    from augury.schedule.problem_file import Stated, save_problem
    from tests.core.test_plan_file import PROBLEM

    stated = Stated(problem=PROBLEM, num_ranks=2)
    return [_saved("problem.json", lambda path: save_problem(stated, path))]


_HOSTS = b"""num_hosts = 4
ranks_per_host = 2
[intra]
latency_ns = 1000
bandwidth_bytes_per_s = 10_000_000_000
overhead_ns = 100
[inter]
latency_ns = 20_000
bandwidth_bytes_per_s = 1_250_000_000
overhead_ns = 2_000
"""


def cluster() -> list[GoodFiles]:
    from augury.core.cluster.cluster_file import find_cluster, save_cluster

    levels = _saved("cluster.toml", lambda path: save_cluster(find_cluster("abci"), path))
    return [levels, _one("cluster.toml", _HOSTS)]


def model() -> list[GoodFiles]:
    from augury.oracle.model_reader.model_file import save_model_file
    from tests.oracle.small import MODEL

    return [_saved("model.json", lambda path: save_model_file(MODEL, path))]


def constants() -> list[GoodFiles]:
    from augury.oracle.fitting.corrections import save_constants
    from augury.oracle.fitting.published import find_constants

    published = find_constants("published")
    return [_saved("constants.json", lambda path: save_constants(published, path))]


_MEASURED = b"""model,strategy,devices,global_batch,measured_step_s,measured_memory_bytes
resnet50,data,4,256,0.35,8e9
resnet50,zero3,16,1K,0.41,
vgg16,serial,1,64,1.2,
"""
_PANELS = b"""panel,p,model_comp_s,model_total_s,emp_comp_s,emp_total_s
ResNet50 ds b64,4,0.1,0.2,0.11,0.21
VGG16 data b32,64,0.1,0.2,,0.4
"""


def measured() -> list[GoodFiles]:
    return [_one("measured.csv", content) for content in (_MEASURED, _PANELS)]


_TIMED = b"""collective,devices,size_bytes,time_s
all-reduce,4,1000,1e-3
all_gather,16,1000000,0.02
"""


def timings() -> list[GoodFiles]:
    from tests.costs.test_cluster_fit import NCCL

    return [_one("timings.csv", content) for content in (_TIMED, NCCL.encode())]
