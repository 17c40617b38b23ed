"""Execution traces beside traces of the profiler, alone, and as torch writes them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from augury.core.enums import OpKind
from augury.core.errors import InputError
from augury.core.trace.trace_spec import problems
from augury.ingest.foreign_traces import read_foreign
from tests.ingest.formats.execution_trace_writer import (
    ELEMENTS,
    NUM_STEPS,
    execution_trace,
    kineto_trace,
)

TRAINING = """
import os, sys
import torch
import torch.distributed as dist
from torch.profiler import ExecutionTraceObserver, ProfilerActivity, profile, schedule

dist.init_process_group("gloo")
out, rank = sys.argv[1], dist.get_rank()
net = torch.nn.Linear(512, 512)
optimizer = torch.optim.SGD(net.parameters(), 0.1)
observer = ExecutionTraceObserver().register_callback(f"{out}/rank{rank}_et.json")
with profile(
    activities=[ProfilerActivity.CPU],
    record_shapes=True,
    schedule=schedule(wait=0, warmup=1, active=12, repeat=1),
    execution_trace_observer=observer,
    on_trace_ready=lambda p: p.export_chrome_trace(f"{out}/rank{rank}.json"),
) as profiler:
    for _ in range(14):
        optimizer.zero_grad()
        net(torch.randn(64, 512)).sum().backward()
        for parameter in net.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
        profiler.step()
dist.destroy_process_group()
"""


def test_groups_and_sizes_come_from_the_execution_trace(tmp_path: Path):
    for rank in range(2):
        (tmp_path / f"rank{rank}.json").write_bytes(kineto_trace(rank))
        (tmp_path / f"rank{rank}_et.json").write_bytes(execution_trace())
    trace = read_foreign([tmp_path])
    assert list(problems(trace)) == []
    sent = trace.events.kind == OpKind.ALL_REDUCE
    assert trace.events.size_bytes[sent].tolist() == [4 * ELEMENTS] * (2 * NUM_STEPS)
    assert trace.groups == [[0, 1]]
    assert trace.ledger["execution-trace"].count == 2


def test_one_with_times_is_a_trace_by_itself(tmp_path: Path):
    path = tmp_path / "linked.json"
    path.write_bytes(execution_trace(has_times=True, rank=0))
    trace = read_foreign([path])
    assert list(problems(trace)) == []
    assert {"aten::linear", "record_param_comms"} <= {*trace.strings}
    first = int(np.argmin(trace.events.start_ns))
    assert trace.events.dur_ns[first] == 90_000


def test_one_without_times_needs_the_trace_of_the_profiler(tmp_path: Path):
    path = tmp_path / "et.json"
    path.write_bytes(execution_trace())
    with pytest.raises(InputError, match="without times") as refused:
        read_foreign([path])
    assert "trace of PyTorch's profiler of the same rank" in refused.value.remedy


def test_one_that_was_not_finished_is_refused(tmp_path: Path):
    (tmp_path / "rank0.json").write_bytes(kineto_trace(0))
    (tmp_path / "rank0_et.json").write_bytes(execution_trace()[:-20])
    with pytest.raises(InputError, match="not a complete execution trace"):
        read_foreign([tmp_path])


@pytest.mark.more
def test_files_that_torch_writes(tmp_path: Path):
    pytest.importorskip("torch")
    script, out, alone = tmp_path / "training.py", tmp_path / "out", tmp_path / "alone"
    script.write_text(TRAINING)
    out.mkdir()
    alone.mkdir()
    launcher = (sys.executable, "-m", "torch.distributed.run", "--standalone")
    subprocess.run(
        [*launcher, "--nproc-per-node", "2", "--local-addr", "127.0.0.1", script, out],
        check=True,
        timeout=120,
        capture_output=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    for rank in range(2):
        (alone / f"rank{rank}.json").write_bytes((out / f"rank{rank}.json").read_bytes())
    trace = read_foreign([out])
    assert list(problems(trace)) == []
    # Gloo states no groups: the execution traces are read, and change nothing.
    assert trace.events == read_foreign([alone]).events
    assert (trace.events.sequence >= 0).sum() == 2 * 12 * 2
