"""Writes execution traces as torch's observer does, of a job whose collectives have groups."""

from __future__ import annotations

import json
from typing import Any

RECORDED_AT = 1_000_000.0
STEP_US = 10_000.0
NUM_STEPS = 3
ELEMENTS = 4096


def kineto_trace(rank: int) -> bytes:
    """A trace of the profiler on a device that says nothing about groups."""
    events: list[dict[str, Any]] = []
    for step in range(NUM_STEPS):
        begin = RECORDED_AT + STEP_US * step
        record = 100 * step + 7
        on_host = {"ph": "X", "pid": 7, "tid": 1}
        events += [
            on_host
            | {"cat": "user_annotation", "name": f"ProfilerStep#{step}", "ts": begin}
            | {"dur": STEP_US},
            on_host
            | {"cat": "cpu_op", "name": "record_param_comms", "ts": begin + 100, "dur": 300}
            | {"args": {"External id": 9 * record, "Record function id": record}},
            on_host
            | {"cat": "cuda_runtime", "name": "cudaLaunchKernelExC", "ts": begin + 200, "dur": 50}
            | {"args": {"correlation": record, "External id": 9 * record}},
            {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce_Sum_f32_RING_LL"}
            | {"pid": 0, "tid": 20, "ts": begin + 1000 + 10 * rank, "dur": 2000 - 10 * rank}
            | {"args": {"correlation": record, "External id": 9 * record, "stream": 20}},
        ]
    content = {"traceEvents": events, "distributedInfo": {"rank": rank, "world_size": 2}}
    return json.dumps(content).encode()


def execution_trace(*, has_times: bool = False, rank: int | None = None) -> bytes:
    """Operations of the same job with their groups; with times if a tool has added them."""
    nodes: list[dict[str, Any]] = [
        {"id": 1, "name": "[pytorch|profiler|execution_trace|process]", "ctrl_deps": 1}
    ]
    for step in range(NUM_STEPS):
        begin = RECORDED_AT + STEP_US * step
        times = {"ts": begin + 100, "dur": 300.0} if has_times else {}
        attributes = {
            **{"rf_id": 100 * step + 7, "tid": 1, "seq_id": -1, "fw_tid": 0},
            **{"collective_name": "allreduce", "dtype": "Float", "pg_name": "0"},
            **{"pg_desc": "default_pg", "pg_size": 2, "in_msg_nelems": ELEMENTS},
            **{"out_msg_nelems": ELEMENTS, "global_rank_start": 0, "global_rank_stride": 1},
        }
        values = {"values": [], "shapes": [[ELEMENTS]], "types": ["Tensor(float)"]}
        nodes += [
            {"id": 10 * step + 3, "name": "aten::linear", "ctrl_deps": 1, "inputs": values}
            | {"attrs": [{"name": "rf_id", "type": "uint64", "value": 100 * step + 1}]}
            | ({"ts": begin, "dur": 90.0} if has_times else {}),
            {"id": 10 * step + 5, "name": "record_param_comms", "ctrl_deps": 1, "inputs": values}
            | {"attrs": [{"name": name, "value": value} for name, value in attributes.items()]}
            | times,
        ]
    content: dict[str, Any] = {"schema": "1.1.1-chakra.0.0.4", "pid": 7, "nodes": nodes}
    if rank is not None:
        content["rank"] = rank
    return json.dumps(content).encode()
