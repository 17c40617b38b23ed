"""Phases and layers of kernels: from words, autograd, modules, and the step after."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from augury.build.recorded.recorded_graph import build_recorded
from augury.core.enums import OpKind, Phase, StreamKind, are_communication
from augury.core.graph.graph import NONE
from augury.core.trace.trace import Trace
from augury.ingest.imported import import_traces
from augury.ingest.vocabulary.phase_words import kernel_phase, module_of, range_phase
from augury.replay.run import replay
from augury.replay.utilization import step_durations_ns

TRACES = os.environ.get("AUGURY_TRACES")
real = pytest.mark.skipif(TRACES is None, reason="AUGURY_TRACES is unset: no real traces here")


@pytest.mark.parametrize(
    ("name", "phase"),
    [
        ("## forward ##", Phase.FORWARD),
        ("model_fwd", Phase.FORWARD),
        ("nn.Module: Conv2d_3", Phase.FORWARD),
        ("[pl][profile][Strategy]DDPStrategy.backward", Phase.BACKWARD),
        ("## optimizer ##", Phase.UPDATE),
        ("clip_grad_norm", Phase.UPDATE),
        ("## copy_batch_to_gpu ##", Phase.DATA),
        ("forward-backward", Phase.NONE),
        ("aten::convolution_backward", Phase.NONE),
        ("straightforward", Phase.NONE),
        ("ProfilerStep#3", Phase.NONE),
    ],
)
def test_ranges_state_their_phase_in_words(name: str, phase: Phase):
    assert range_phase(name) == phase


def test_names_of_kernels_and_modules():
    assert kernel_phase("void cudnn_dgrad_engine<float>") == Phase.BACKWARD
    assert kernel_phase("multi_tensor_apply_kernel<...>") == Phase.UPDATE
    assert kernel_phase("volta_sgemm_128x32_nn") == Phase.NONE
    assert module_of("nn.Module: ReLU_1") == "ReLU_1"
    assert module_of("[pl][module]torch.nn.modules.linear.Linear: net.0") == "net.0"
    assert module_of("module: ReLU_1") == ""


class _Program:
    """Events of one rank as Kineto writes them: times in microseconds."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self._correlation = 0

    def add(self, cat: str, name: str, ts: float, dur: float, tid: int = 1, **args: Any) -> None:
        self.events.append(
            {"ph": "X", "cat": cat, "name": name, "pid": 7, "tid": tid, "ts": ts, "dur": dur}
            | {"args": args}
        )

    def launch(self, name: str, ts: float, *, lag: float = 10, tid: int = 1) -> None:
        """Launches a kernel of 5 us on stream 3 of device 0."""
        self._correlation += 1
        if ts >= 0:
            self.add("cuda_runtime", "cudaLaunchKernel", ts, 2, tid, correlation=self._correlation)
        kernel = {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 3, "ts": ts + lag}
        self.events.append(
            kernel | {"dur": 5, "args": {"correlation": self._correlation, "stream": 3}}
        )

    def trace(self, folder: Path) -> Trace:
        path = folder / "rank0.json"
        path.write_text(json.dumps({"traceEvents": self.events}))
        return import_traces([path])


def _phase_and_layer(trace: Trace) -> dict[str, set[tuple[Phase, str]]]:
    found: dict[str, set[tuple[Phase, str]]] = {}
    for row in np.flatnonzero(trace.streams.kind[trace.events.stream] == StreamKind.DEVICE):
        layer = trace.strings[int(trace.events.layer[row])]
        phase = Phase(int(trace.events.phase[row]))
        found.setdefault(trace.name(int(row)), set()).add((phase, layer))
    return found


def _step(program: _Program, step: int, ts: float) -> None:
    program.add("user_annotation", f"ProfilerStep#{step}", ts, 900)
    program.launch("load", ts + 2)
    program.add("python_function", "nn.Module: Linear_0", ts + 20, 100)
    program.add("cpu_op", "aten::linear", ts + 30, 50, **{"Sequence number": 10 * step})
    program.launch("gemm", ts + 40)
    program.add("cpu_op", "aten::mse_loss", ts + 150, 50)
    program.launch("loss", ts + 160)
    node = {"Sequence number": 10 * step, "Fwd thread id": 1}
    program.add(
        "cpu_op", "autograd::engine::evaluate_function: AddmmBackward0", ts + 300, 100, 2, **node
    )
    program.add("cpu_op", "AddmmBackward0", ts + 310, 80, 2, **node)
    program.launch("gemm_bwd", ts + 320, tid=2)
    program.add("cpu_op", "aten::linalg_vector_norm", ts + 500, 50)
    program.launch("norm", ts + 510)
    program.add("user_annotation", "Optimizer.step#SGD.step", ts + 600, 100)
    program.launch("sgd", ts + 610)


def test_kernels_get_phase_and_layer_of_what_launched_them(tmp_path: Path):
    program = _Program()
    for step in (1, 2):
        _step(program, step, 1000.0 * step)
    found = _phase_and_layer(program.trace(tmp_path))
    assert found == {
        "load": {(Phase.NONE, "")},
        "gemm": {(Phase.FORWARD, "Linear_0")},
        "loss": {(Phase.FORWARD, "")},
        "gemm_bwd": {(Phase.BACKWARD, "Linear_0")},
        "norm": {(Phase.UPDATE, "")},
        "sgd": {(Phase.UPDATE, "")},
    }


def test_kernels_launched_before_the_recording_are_like_those_a_step_later(tmp_path: Path):
    program = _Program()
    for place, name in enumerate(("load", "gemm", "loss", "gemm_bwd", "norm", "sgd")):
        program.launch(name, -1, lag=1000.5 + 10 * place)
    program.events.sort(key=lambda event: event["ts"])
    for step in (1, 2):
        _step(program, step, 1000.0 * step)
    for event in program.events:
        if event["cat"] == "kernel" and event["args"]["correlation"] > 6:
            event["ts"] += 100  # the device is behind
    found = _phase_and_layer(program.trace(tmp_path))
    assert found["gemm"] == {(Phase.FORWARD, "Linear_0")}
    assert found["gemm_bwd"] == {(Phase.BACKWARD, "Linear_0")}
    assert found["norm"] == {(Phase.UPDATE, "")}


@real
@pytest.mark.parametrize(
    "name",
    [
        "dlrm8_v100",
        "torchrec_dlrm4_a",
        "torchrec_dlrm4_b",
        "torchrec_resnet18_2",
        "nccl_args_a100",
        "rccl_args_mi300",
    ],
)
def test_kernels_of_real_traces_have_a_phase(name: str):
    assert TRACES is not None
    trace = import_traces([Path(TRACES) / name])
    events = trace.events
    kernels = np.isin(trace.streams.kind[events.stream], [StreamKind.DEVICE])
    kernels &= ~are_communication(events.kind) & (events.kind != OpKind.COPY)
    time_ns = {
        phase: int(events.dur_ns[kernels & (events.phase == phase)].sum()) for phase in Phase
    }
    assert time_ns[Phase.NONE] < 0.01 * sum(time_ns.values())
    if name != "torchrec_resnet18_2":  # a forward pass alone
        assert time_ns[Phase.BACKWARD] > time_ns[Phase.FORWARD] > 0
        assert time_ns[Phase.UPDATE] > 0


@real
def test_kernels_of_a_real_trace_with_module_frames_have_layers():
    assert TRACES is not None
    trace = import_traces([Path(TRACES) / "rccl_args_mi300"])
    events = trace.events
    kernels = np.isin(trace.streams.kind[events.stream], [StreamKind.DEVICE])
    kernels &= ~are_communication(events.kind) & (events.kind != OpKind.COPY)
    has_layer = kernels & (events.layer >= 0)
    assert events.dur_ns[has_layer].sum() > 0.9 * events.dur_ns[kernels].sum()


@pytest.mark.parametrize("base_us", [0.0, 1_700_000_000_000_000.0])
def test_ranges_that_seem_to_overlap_by_rounding_follow_each_other(tmp_path: Path, base_us: float):
    """Sums of rounded floats let a range end just after the next one has begun."""
    program = _Program()
    for i in range(20):
        begin = base_us + 100 * i
        program.add("user_annotation", f"Backward {i}", begin, 50.0007)
        program.add("user_annotation", f"Forward {i}", begin + 50.0003, 49.9)
        program.launch("gemm", begin + 60)
    trace = program.trace(tmp_path)
    on_device = trace.streams.kind[trace.events.stream] == StreamKind.DEVICE
    assert set(trace.events.phase[on_device].tolist()) == {Phase.FORWARD}


def test_ranges_within_each_other_end_where_the_next_one_begins(tmp_path: Path):
    """Thousands of them: each one around the innermost seems to end too late as well."""
    depth = 20_000
    program = _Program()
    for _ in range(depth):
        program.add("user_annotation", "Backward", 1_000.0, 100.0005)
    program.add("user_annotation", "Forward", 1_100.0, 50.0)
    program.launch("gemm", 1_110.0)
    trace = program.trace(tmp_path)
    events = trace.events
    names = np.array([trace.strings[name] for name in events.name.tolist()])
    assert (events.dur_ns[names == "Backward"] == 100_000).all()
    assert np.count_nonzero(names == "Backward") == depth
    on_device = trace.streams.kind[events.stream] == StreamKind.DEVICE
    assert set(events.phase[on_device].tolist()) == {Phase.FORWARD}


@pytest.mark.parametrize(
    ("copies", "copy_us", "kind"),
    [
        (0, 5.0, StreamKind.COMMUNICATION),
        (1, 5.0, StreamKind.COMMUNICATION),
        (3, 5.0, StreamKind.COMMUNICATION),
        (3, 50.0, StreamKind.DEVICE),
        (8, 5.0, StreamKind.DEVICE),
    ],
)
def test_streams_that_also_copy_into_buffers(
    tmp_path: Path, copies: int, copy_us: float, kind: StreamKind
):
    """FSDP copies gradients on the stream that scatters them."""
    program = _Program()
    for i in range(4):
        at = 1_000.0 * i
        for name, dur in [*[("chunk_cat", copy_us)] * copies, ("ncclDevKernel_ReduceScatter", 90)]:
            program.launch(name, at)
            program.events[-1] |= {"cat": "kernel", "dur": dur}
            at += dur + 10
    trace = program.trace(tmp_path)
    kinds = trace.streams.kind[trace.events.stream[are_communication(trace.events.kind)]]
    assert set(kinds.tolist()) == {kind}


def test_the_first_kernel_waits_for_steps_before_the_graph(tmp_path: Path):
    """The host runs ahead: kernels of the first whole step wait for those of the step before."""
    program = _Program()
    for step in range(4):
        for i in range(5):
            program.launch(f"gemm_{i}", 1_000.0 * step + 20 * i)
            end = 5_000.0 * step + 1_000 * i
            program.events[-1] |= {"cat": "kernel", "ts": end + 500, "dur": 999}
        program.add("user_annotation", "Optimizer.step#SGD.step", 1_000.0 * step + 100, 20)
    graph = build_recorded(program.trace(tmp_path))
    waits = graph.ops.kind == OpKind.UNEXPLAINED
    assert graph.ops.work_ns[waits & (graph.ops.resource == NONE)].max(initial=0) < 100_000
    steps_ns = step_durations_ns(replay(graph).rank_steps)
    assert np.median(steps_ns) == pytest.approx(5_000_000, rel=0.02)
