"""Hand-written runs with known contents, in place of recorded files."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MS = 1_000_000
EPOCH_NS = 1_790_000_000_000_000_000
NUM_STEPS = 30
STEP_NS = 100 * MS
WINDOWS = ((5, 12, "light"), (15, 20, "light"), (22, 24, "detail"))
LAYERS = ("first", "last")
BUCKETS = (3_000_000, 1_000_000)

Shift = Callable[[int], int]
"""Maps true time to a rank's clock."""


def true_clock(ns: int) -> int:
    return ns


def skewed(offset_ns: int, drift_ppm: float) -> Shift:
    return lambda ns: ns + offset_ns + round((ns - EPOCH_NS) * drift_ppm / 1e6)


@dataclass
class Run:
    """Two ranks on two hosts by default, a step every 100 ms, two buckets."""

    folder: Path
    clocks: tuple[Shift, ...] = (true_clock, true_clock)
    hosts: tuple[str, ...] = ("one", "two")
    handshakes: bool = True
    jitter_ns: Callable[[int, int], int] = lambda rank, step: 0  # noqa: ARG005
    overtaking: tuple[int, ...] = ()
    """Ranks on which the thread of the first bucket logs its start last."""
    change: Callable[[dict[str, Any]], None] = lambda record: None  # noqa: ARG005
    records: list[dict[str, Any]] = field(default_factory=list)

    def write(self) -> Path:
        self.folder.mkdir(parents=True, exist_ok=True)
        for rank, clock in enumerate(self.clocks):
            record = self._record(rank, clock)
            for number, (first, last, mode) in enumerate(WINDOWS):
                name = f"rank-{rank:05d}.{number}.trace.json.gz"
                events = [
                    event
                    for step in range(first + 1, last + 1)
                    for event in self._step(rank, step, mode == "detail", clock)
                ]
                write_trace_file(self.folder / name, events)
                record["windows"].append(
                    {"first": first, "last": last, "mode": mode, "trace": name}
                )
            self.change(record)
            (self.folder / f"rank-{rank:05d}.json").write_text(json.dumps(record))
            self.records.append(record)
        return self.folder

    def _record(self, rank: int, clock: Shift) -> dict[str, Any]:
        world = len(self.clocks)
        return {
            "schema_version": 2,
            "rank": rank,
            "world_size": world,
            "host": self.hosts[rank],
            "framework": "torch",
            "cores": 2,
            "command": ["train.py"],
            "trouble": None,
            "windows": [],
            "step_end_ns": [clock(EPOCH_NS + step * STEP_NS) for step in range(1, NUM_STEPS + 1)],
            "resumed": [[5, clock(EPOCH_NS + 5 * STEP_NS + 3 * MS)]],
            "step_cpu": [[5, 0, 0, 0], [6, 60 * MS, 1 * MS, 80 * MS], [7, 130 * MS, -1, 170 * MS]],
            "groups": [{"name": "0", "ranks": list(range(world)), "backend": "gloo"}],
            "ddp": [
                {
                    "group": "0",
                    "parameters": [
                        {"name": "first.weight", "size_bytes": BUCKETS[1], "dtype": "float32"},
                        {"name": "last.weight", "size_bytes": BUCKETS[0], "dtype": "float32"},
                    ],
                    "buckets": [
                        {"size_bytes": BUCKETS[0], "parameters": [1]},
                        {"size_bytes": BUCKETS[1], "parameters": [0]},
                    ],
                    "ready_order": [1, 0],
                    "bucket_cap_bytes": 1 << 20,
                    "gradient_as_bucket_view": False,
                    "find_unused_parameters": False,
                }
            ],
            "memory": [{"kind": "parameter", "layer": "first", "size_bytes": BUCKETS[1]}],
            "handshake": self._handshake(clock) if rank and self.handshakes else [],
            "calibration": [{"size_bytes": 4096, "durations_ns": [5000 + rank, 6000 - rank, 7000]}],
            "plan": None,
            "a_key_of_tomorrow": {"is": "ignored"},
        }

    def _handshake(self, clock: Shift) -> list[dict[str, Any]]:
        """Handshakes with asymmetric delays, except for the shortest of each moment."""
        moments = {"start": EPOCH_NS + 5 * STEP_NS, "end": EPOCH_NS + 24 * STEP_NS}
        return [
            {
                "peer": 0,
                "moment": moment,
                "exchanges": [
                    [
                        clock(at + i * MS),
                        self.clocks[0](at + i * MS + 30_000 + 200_000 * (i % 5)),
                        self.clocks[0](at + i * MS + 40_000 + 200_000 * (i % 5)),
                        clock(at + i * MS + 70_000 + 200_000 * (i % 5)),
                    ]
                    for i in range(40)
                ],
            }
            for moment, at in moments.items()
        ]

    def _step(self, rank: int, step: int, detailed: bool, clock: Shift) -> list[dict[str, Any]]:
        begin = EPOCH_NS + (step - 1) * STEP_NS
        late = self.jitter_ns(rank, step)
        events: list[dict[str, Any]] = []

        def add(name: str, start: int, end: int, thread: int = 1, cat: str = "cpu_op", **args):
            events.append(
                {
                    **{"ph": "X", "cat": cat, "name": name, "pid": 7, "tid": thread},
                    **{"ts": (clock(begin + start) - EPOCH_NS) / 1000},
                    **{"dur": (clock(begin + end) - clock(begin + start)) / 1000, "args": args},
                }
            )

        note = {"cat": "user_annotation"}
        add("Optimizer.zero_grad#SGD.zero_grad", 4 * MS, 5 * MS, **note)
        add("DistributedDataParallel.forward", 10 * MS, 30 * MS, **note)
        for i, layer in enumerate(LAYERS):
            at, number = 10 * MS + i * 10 * MS, {"Sequence number": 10 * step + i}
            if detailed:
                add(f"augury.module: {layer}", at + 1, at + 9 * MS, **note)
                add("aten::linear", at + 2, at + 8 * MS, **number, **{"Fwd thread id": 0})
            at, node = 60 * MS - i * 20 * MS, {**number, "Fwd thread id": 1}
            frame = "autograd::engine::evaluate_function: "
            if detailed:
                add(frame + "AddmmBackward0", at, at + 10 * MS, **node)
                add(frame + "torch::autograd::AccumulateGrad", at + 11 * MS, at + 13 * MS)
                shapes = {
                    "Input Dims": [[[BUCKETS[1 - i] // 4]], []],
                    "Input type": ["TensorList", ""],
                }
                add("c10d::allreduce_", at + 12 * MS + 500_000, at + 12 * MS + 600_000, **shapes)
            add("AddmmBackward0", at, at + 10 * MS - 1000, **node)
            add("torch::autograd::AccumulateGrad", at + 11 * MS, at + 12 * MS)
        for i, size in enumerate(BUCKETS):
            shape = {"Input Dims": [[size // 4]], "Input type": ["float"]}
            start = 53 * MS + i * 20 * MS
            if rank in self.overtaking:
                start = 74 * MS - i * MS
            add("gloo:all_reduce", start + late, start + 9 * MS, 2 + i, **note, **shape)
        # The recorder works on at the end of a step, within the optimizer's event.
        add("Optimizer.step#SGD.step", 85 * MS, 101 * MS, **note)
        return events


def write_trace_file(path: Path, events: list[dict[str, Any]], **head: Any) -> None:
    content = {"baseTimeNanoseconds": EPOCH_NS, "traceEvents": events} | head
    with gzip.open(path, "wt", compresslevel=1) as file:
        json.dump(content, file)
