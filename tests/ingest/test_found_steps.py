"""Steps of imported traces are found by annotations, by updates, or by neither."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from augury.build.recorded.recorded_graph import build_recorded
from augury.core.enums import StepState
from augury.core.trace.trace import Trace
from augury.ingest.imported import import_traces
from augury.replay.run import replay

STEP_US = 10_000
MAIN, AUTOGRAD = 1, 2
BACKWARD = "autograd::engine::evaluate_function: AddmmBackward0"
ADAM = "Optimizer.step#Adam.step"
Range = tuple[str, int, int, int]
"""Name, thread, start and duration, in microseconds from the start of the step."""


def write(folder: Path, steps: int, ranges: list[Range], *, rank: int = 0) -> None:
    """A program that launches a kernel in forward, another one in backward, and waits for both."""
    events: list[dict[str, Any]] = []

    def add(name: str, tid: int | str, start: int, dur: int, cat: str, correlation: int) -> None:
        times = {"ts": 1_000_000 + start, "dur": dur, "args": {"correlation": correlation}}
        events.append({"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": tid, **times})

    for number in range(steps):
        begin = number * STEP_US
        own: list[Range] = [("aten::linear", MAIN, 100, 50), (BACKWARD, AUTOGRAD, 3_000, 500)]
        for name, tid, start, dur in [*own, *ranges]:
            numbered = f"{name}{number}" if name.endswith("#") else name
            add(numbered, tid, begin + start, dur, "cpu_op", 0)
        for at, (tid, start) in enumerate(((MAIN, 110), (AUTOGRAD, 3_100))):
            which = 2 * number + at + 1
            add("cudaLaunchKernel", tid, begin + start, 10, "cuda_runtime", which)
            add(f"gemm {at}", "stream 7", begin + start + 20, 2_500, "kernel", which)
        add("cudaStreamSynchronize", MAIN, begin + 3_700, 2_000, "cuda_runtime", 0)
    content = {"traceEvents": events, "distributedInfo": {"rank": rank}}
    (folder / f"rank{rank}.json").write_text(json.dumps(content))


def durations_us(trace: Trace) -> list[int]:
    timed = trace.steps.state == StepState.TIMED
    return ((trace.steps.end_ns - trace.steps.start_ns)[timed] // 1_000).tolist()


UPDATES: dict[str, list[Range]] = {
    "one": [(ADAM, MAIN, 8_000, 1_000)],
    "nested": [
        ("Optimizer.step#ZeroRedundancyOptimizer.step", MAIN, 8_000, 1_000),
        (ADAM, MAIN, 8_010, 980),
    ],
    "same times": [(ADAM, MAIN, 8_000, 1_000), (ADAM, MAIN, 8_000, 1_000)],
    "two in a row": [(ADAM, MAIN, 8_000, 300), ("Optimizer.step#SGD.step", MAIN, 8_500, 500)],
}


@pytest.mark.parametrize("kind", UPDATES)
def test_a_step_ends_with_its_last_update(kind: str, tmp_path: Path):
    write(tmp_path, 4, UPDATES[kind])
    trace = import_traces([tmp_path])
    assert durations_us(trace) == [STEP_US] * 3
    graph = build_recorded(trace)
    assert replay(graph).step_ns == np.median(graph.measured.dur_ns) == STEP_US * 1_000


def test_updates_with_backward_between_them_are_two(tmp_path: Path):
    second: list[Range] = [(BACKWARD, AUTOGRAD, 6_500, 500), (ADAM, MAIN, 8_000, 1_000)]
    write(tmp_path, 3, [(ADAM, MAIN, 5_800, 200), *second])
    assert durations_us(import_traces([tmp_path])) == [3_000, 7_000, 3_000, 7_000, 3_000]


def test_a_trace_with_one_update_is_one_step(tmp_path: Path):
    write(tmp_path, 1, UPDATES["one"])
    trace = import_traces([tmp_path])
    assert durations_us(trace) == [8_900]
    assert trace.ledger["unmarked-steps"].count == 1
    assert replay(build_recorded(trace)).step_ns == 8_900_000


def test_a_rank_with_one_update_is_left_out_where_others_have_several(tmp_path: Path):
    write(tmp_path, 4, UPDATES["one"])
    write(tmp_path, 1, UPDATES["one"], rank=1)
    trace = import_traces([tmp_path])
    assert set(trace.steps.rank[trace.steps.state == StepState.TIMED].tolist()) == {0}
    assert trace.ledger["rank-without-complete-steps"].count == 1


def test_optimizers_may_step_within_backward(tmp_path: Path):
    """The update runs on a thread of autograd, the profiler's annotation on the main thread."""
    ranges: list[Range] = [("ProfilerStep#", MAIN, 0, 9_990)]
    ranges += [(ADAM, AUTOGRAD, 3_200 + 100 * i, 50) for i in range(3)]
    write(tmp_path, 3, ranges)
    assert durations_us(import_traces([tmp_path])) == [9_990] * 3


def test_kernels_tell_the_steps_of_a_trace_without_operations(tmp_path: Path):
    """All launches have the same name: only kernels show the period."""
    events: list[dict[str, Any]] = []
    kernels = ["embed", *["attention", "gemm", "gemm"] * 3, "loss", "adam"]
    at = 0
    for number in range(4):
        for place, kernel in enumerate(kernels):
            which = number * 100 + place + 1
            for name, tid, cat, start, dur in (
                ("cudaLaunchKernel", MAIN, "cuda_runtime", at, 10),
                (kernel, "stream 7", "kernel", at + 20, 80),
            ):
                event = {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": tid}
                events.append(event | {"ts": start, "dur": dur, "args": {"correlation": which}})
            at += 100
        at += 500
    (tmp_path / "rank0.json").write_text(json.dumps({"traceEvents": events}))
    trace = import_traces([tmp_path])
    assert len(durations_us(trace)) in (3, 4)
    assert set(durations_us(trace)[:3]) == {100 * len(kernels) + 500}
