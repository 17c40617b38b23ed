"""Memory of devices, from the events of their allocators: read, tied to operations, replayed."""

from __future__ import annotations

import json
import os
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from augury.build.recorded.recorded_graph import build_recorded
from augury.core.enums import MemoryKind, Phase
from augury.core.memory_curve import memory_curve
from augury.core.timeline import Timeline
from augury.core.trace.trace import Trace
from augury.core.trace.trace_file import read_trace, write_trace
from augury.core.trace.trace_spec import problems
from augury.ingest.imported import import_traces
from augury.replay.run import replay
from tests.campaigns import campaign
from tests.ingest.written import write_trace_file

TRACES = os.environ.get("AUGURY_TRACES")
MAIN, BACKWARD, STREAM = 1, 2, 7
STEP_US, MB, CAPACITY = 10_000.0, 1 << 20, 16 << 30
Event = dict[str, Any]


@dataclass
class Written:
    """A trace of one rank on a device, with its allocator: two steps, each of which runs one
    operation on the main thread, one on the thread of backward, and an update."""

    held_bytes: int = 100 * MB
    device: int = 0
    events: list[Event] = field(default_factory=list)
    totals: list[tuple[float, int]] = field(default_factory=list)
    sizes: dict[int, int] = field(default_factory=dict)

    def step(self, number: int) -> None:
        at = STEP_US * (number + 1)
        self._host(f"ProfilerStep#{number}", at, STEP_US, MAIN, "user_annotation")
        node = {"Sequence number": number + 5}
        self._host("aten::addmm", at + 100, 1000, MAIN, launch=True, args=node)
        self._host(
            "AddmmBackward0",
            at + 3000,
            1000,
            BACKWARD,
            launch=True,
            args=node | {"Fwd thread id": 1},
        )
        self._host("Optimizer.step#SGD.step", at + 6000, 1000, MAIN, "user_annotation", launch=True)
        self.allocate(at + 200, 1, 50 * MB)  # an activation
        self.allocate(at + 210, 2, 400 * MB)  # scratch memory within one operation
        self.free(at + 220, 2)
        self.allocate(at + 230, 3, 300 * MB)  # not at the same time as the one before
        self.free(at + 240, 3)
        self.allocate(at + 3100, 4, 20 * MB, thread=BACKWARD)  # a gradient
        self.free(at + 3200, 1, thread=BACKWARD)
        self.free(at + 6500, 4)

    def allocate(self, at: float, address: int, size: int, thread: int = MAIN) -> None:
        self.sizes[address] = size
        self._memory(at, address, size, thread)

    def free(self, at: float, address: int, thread: int = MAIN) -> None:
        self._memory(at, address, -self.sizes.pop(address), thread)

    def write(self, folder: Path) -> Path:
        device = {"id": self.device, "name": "a device", "totalGlobalMem": CAPACITY}
        path = folder / "rank0.json"
        write_trace_file(
            path,
            self.events,
            deviceProperties=[device],
            distributedInfo={"backend": "nccl", "rank": 0, "world_size": 1},
        )
        return path

    def _memory(self, at: float, address: int, change: int, thread: int) -> None:
        self.held_bytes += change
        self.totals.append((at, self.held_bytes))
        self.events.append(
            {"ph": "i", "s": "t", "cat": "cpu_instant_event", "name": "[memory]"}
            | {"pid": 1, "tid": thread, "ts": at}
            | {
                "args": {
                    "Device Type": 1,
                    "Device Id": self.device,
                    "Addr": address,
                    "Bytes": change,
                    "Total Allocated": self.held_bytes,
                    "Total Reserved": 2 << 30,
                }
            }
        )

    def _host(
        self,
        name: str,
        at: float,
        dur: float,
        thread: int,
        cat: str = "cpu_op",
        *,
        launch: bool = False,
        args: Event | None = None,
    ) -> None:
        self.events.append(_event(name, at, dur, thread, cat, args))
        if launch:
            number = {"correlation": len(self.events)}
            self.events.append(
                _event("cudaLaunchKernel", at + 5, 10, thread, "cuda_runtime", number)
            )
            self.events.append(_event("gemm", at + 20, 500, STREAM, "kernel", number, pid=0))


def _event(
    name: str, at: float, dur: float, tid: int, cat: str, args: Event | None = None, pid: int = 1
) -> Event:
    return {
        **{"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": at, "dur": dur},
        **{"args": args or {}},
    }


def two_steps() -> Written:
    written = Written()
    written.step(0)
    written.step(1)
    return written


def replayed(trace: Trace) -> Timeline:
    return replay(build_recorded(trace))


def measured_peak(trace: Trace) -> int:
    """The highest total during the recorded steps, with that at their start."""
    found, steps = trace.allocations, trace.steps
    inside = (found.at_ns > steps.start_ns[0]) & (found.at_ns <= steps.end_ns[-1])
    begin = int(found.allocated_bytes[0] - found.change_bytes[0])
    before = found.allocated_bytes[found.at_ns <= steps.start_ns[0]].tolist()
    return max(
        [*found.allocated_bytes[inside].tolist(), *before[-1:], *([] if before else [begin])]
    )


def test_the_replayed_peak_is_the_measured_one_with_its_holders(tmp_path: Path):
    written = two_steps()
    trace = import_traces([written.write(tmp_path)])
    assert trace.ranks[0].device_memory_bytes == CAPACITY
    assert not {each.name for each in trace.ledger} & {
        "invalid-memory-event",
        "contradictory-memory",
    }
    timeline = replayed(trace)
    (peak,) = timeline.peak_memory
    assert peak.size_bytes == max(total for _, total in written.totals) == 550 * MB
    assert {(each.kind, each.size_bytes) for each in peak.holders} == {
        (MemoryKind.OTHER, 100 * MB),
        (MemoryKind.ACTIVATION, 50 * MB),
        (MemoryKind.WORKSPACE, 400 * MB),
    }
    assert memory_curve(timeline).held_bytes.max() == peak.size_bytes


def test_allocations_belong_to_the_operation_around_them(tmp_path: Path):
    trace = import_traces([two_steps().write(tmp_path)])
    found = trace.allocations
    assert len(found) == 16
    names = [trace.strings[name] if name >= 0 else "" for name in found.name.tolist()]
    assert names[0] == "aten::addmm"
    assert names[5] == "AddmmBackward0"
    assert names[7] == "Optimizer.step#SGD.step"
    assert found.phase[[0, 5, 7]].tolist() == [Phase.FORWARD, Phase.BACKWARD, Phase.UPDATE]
    assert found.pair[[0, 6]].tolist() == [6, 0]
    assert (np.diff(found.at_ns) > 0).all()


def test_memory_from_before_the_recording_is_held_memory(tmp_path: Path):
    """It is freed in the middle of a step, and nothing else is allocated."""
    written = Written(held_bytes=300 * MB)
    written.sizes[9] = 200 * MB
    written.step(0)
    written.free(STEP_US + 7000, 9)
    trace = import_traces([written.write(tmp_path)])
    timeline = replayed(trace)
    assert timeline.peak_memory[0].size_bytes == 750 * MB == measured_peak(trace)
    assert memory_curve(timeline).held_bytes[-1] == 100 * MB


def test_a_run_keeps_its_memory(tmp_path: Path):
    trace = import_traces([two_steps().write(tmp_path)])
    (tmp_path / "run").mkdir()
    write_trace(trace, tmp_path / "run")
    assert read_trace(tmp_path / "run") == trace


def test_a_second_device_is_left_out_and_counted(tmp_path: Path):
    written = two_steps()
    other = Written(device=1, held_bytes=0)
    other.allocate(STEP_US + 50, 77, 5 * MB)
    other.events[-1]["args"]["Total Reserved"] = 1 << 30
    written.events += other.events
    trace = import_traces([written.write(tmp_path)])
    assert replayed(trace).peak_memory[0].size_bytes == 550 * MB
    assert [each.count for each in trace.ledger if each.name == "memory-of-other-devices"] == [1]


def test_events_of_the_host_are_no_device_memory(tmp_path: Path):
    written = two_steps()
    for event in written.events:
        if event["ph"] == "i":
            event["args"] |= {"Device Type": 0, "Device Id": -1, "Total Allocated": 0}
    trace = import_traces([written.write(tmp_path)])
    assert not len(trace.allocations)
    assert not replayed(trace).peak_memory


@pytest.mark.parametrize(
    ("change", "warning"),
    [
        ({"Total Allocated": -5}, "invalid-memory-event"),
        ({"Total Allocated": 10**17}, "invalid-memory-event"),
        ({"Total Allocated": "much"}, "invalid-memory-event"),
        ({"Total Reserved": 3}, "invalid-memory-event"),
        ({"Addr": 10**30}, "invalid-memory-event"),
        ({"Addr": None}, "invalid-memory-event"),
        ({"Bytes": 0}, "invalid-memory-event"),
        ({"Bytes": -(10**17)}, "invalid-memory-event"),
        ({"Bytes": 1.5}, "invalid-memory-event"),
        ({"Bytes": 1 << 40}, "contradictory-memory"),
        ({"Bytes": -(1 << 40)}, "contradictory-memory"),
        ({"Device Id": -7}, "invalid-memory-event"),
        ({"Device Id": 10**12}, "invalid-memory-event"),
    ],
)
@pytest.mark.parametrize("place", [0, 5, 11])
def test_a_malformed_event_is_counted_and_bends_nothing(
    tmp_path: Path, change: dict[str, Any], warning: str, place: int
):
    written = two_steps()
    spoiled = [event for event in written.events if event["ph"] == "i"][place]
    spoiled["args"] |= change
    trace = import_traces([written.write(tmp_path)])
    assert {each.name for each in trace.ledger} >= {warning}
    assert replayed(trace).peak_memory[0].size_bytes == 550 * MB


def test_thousands_of_devices(tmp_path: Path):
    written = two_steps()
    for number in range(1, 6000):
        other = Written(device=number, held_bytes=0)
        other.allocate(STEP_US + 50, 77, 5 * MB)
        other.events[-1]["args"]["Total Reserved"] = 1 << 30
        written.events += other.events
    path = written.write(tmp_path)
    trace = import_traces([path])
    assert replayed(trace).peak_memory[0].size_bytes == 550 * MB
    assert {each.name for each in trace.ledger} >= {
        "memory-of-other-devices",
        "invalid-memory-event",
    }


@pytest.mark.parametrize(
    "properties", [None, 3, "x", [1], [{"id": "0"}], [{"totalGlobalMem": -1}], [{"id": 0}], [[]]]
)
def test_odd_descriptions_of_devices_state_no_capacity(tmp_path: Path, properties: Any):
    written = two_steps()
    path = tmp_path / "rank0.json"
    write_trace_file(path, written.events, deviceProperties=properties)
    trace = import_traces([path])
    assert trace.ranks[0].device_memory_bytes is None
    assert replayed(trace).peak_memory[0].size_bytes == 550 * MB


_ODD = [
    -(2**62),
    -(2**46),
    -1,
    0,
    1,
    MB,
    2**44,
    2**45,
    2**46,
    2**47,
    10**18,
    10**30,
    None,
    "x",
    1.5,
]


@campaign(200)
@given(seed=st.integers(0, 10**9))
def test_hostile_events_never_hold_more_than_the_highest_total(
    tmp_path_factory: pytest.TempPathFactory, seed: int
):
    dice = random.Random(seed)
    written = two_steps()
    memory = [event for event in written.events if event["ph"] == "i"]
    for _ in range(dice.randint(1, 30)):
        key = dice.choice(sorted(memory[0]["args"]))
        dice.choice(memory)["args"][key] = dice.choice(_ODD)
    written.events += [
        json.loads(json.dumps(dice.choice(memory))) for _ in range(dice.randint(0, 9))
    ]
    trace = import_traces([written.write(tmp_path_factory.mktemp("hostile"))])
    assert list(problems(trace)) == []
    peaks = replayed(trace).peak_memory
    if peaks:
        assert peaks[0].size_bytes == measured_peak(trace)


@pytest.mark.skipif(TRACES is None, reason="AUGURY_TRACES is unset: no real traces here")
def test_the_replayed_peak_of_a_real_run_is_the_measured_one():
    assert TRACES is not None
    trace = import_traces([Path(TRACES) / "scale_v100"])
    assert len(trace.allocations) == 26_770
    assert trace.ranks[0].device_memory_bytes == 34_089_730_048
    assert [each.name for each in trace.ledger] == ["missing-rank"]
    timeline = replayed(trace)
    (peak,) = timeline.peak_memory
    assert peak.size_bytes == measured_peak(trace) == 6_629_508_096
    assert sum(each.size_bytes for each in peak.holders) == peak.size_bytes
    assert memory_curve(timeline).held_bytes.max() == peak.size_bytes
