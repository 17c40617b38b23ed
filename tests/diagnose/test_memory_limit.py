"""Devices whose memory is nearly full or fragmented."""

from __future__ import annotations

from pathlib import Path

import pytest

import augury
from augury.core.results.diagnosis import Diagnosis, Finding
from augury.ingest.import_run import import_run
from tests.ingest.test_allocations import CAPACITY, two_steps
from tests.ingest.written import write_trace_file


def diagnosis(
    folder: Path, *, reserved: float, allocated: float, capacity: int | None = CAPACITY
) -> Diagnosis:
    """Shares of the capacity at the peak."""
    written = two_steps()
    most = max(total for _, total in written.totals)
    for event in written.events:
        if event["ph"] == "i":
            event["args"]["Total Reserved"] = int(reserved * CAPACITY)
            event["args"]["Total Allocated"] += int(allocated * CAPACITY) - most
    devices = [] if capacity is None else [{"id": 0, "totalGlobalMem": capacity}]
    write_trace_file(folder / "rank0.json", written.events, deviceProperties=devices)
    import_run([folder / "rank0.json"], folder / "run")
    return augury.open(folder / "run").diagnose()


def findings(found: Diagnosis) -> list[Finding]:
    return [one for one in found.findings if one.kind == "memory-limit"]


def test_a_device_that_is_nearly_full_is_found(tmp_path: Path):
    found = diagnosis(tmp_path, reserved=0.95, allocated=0.93)
    (one,) = findings(found)
    assert one.where.ranks == [0]
    assert one.gain_pct is None
    assert one.confidence == "high"
    assert "smaller batch" in one.action
    figures = {each.name: each.value for each in one.evidence}
    assert figures["capacity of the device"] == CAPACITY
    assert figures["peak reserved"] == int(0.95 * CAPACITY)
    assert figures["peak allocated"] == int(0.93 * CAPACITY)


def test_fragmentation_is_found_with_its_setting(tmp_path: Path):
    (one,) = findings(diagnosis(tmp_path, reserved=0.8, allocated=0.6))
    assert one.command == "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
    assert "fragmentation" in one.title


@pytest.mark.parametrize(("reserved", "allocated"), [(0.89, 0.8), (0.7, 0.3), (0.8, 0.66)])
def test_memory_with_room_is_no_finding(tmp_path: Path, reserved: float, allocated: float):
    found = diagnosis(tmp_path, reserved=reserved, allocated=allocated)
    assert findings(found) == []
    assert "memory-limit" not in found.not_examined


def test_without_capacity_it_is_not_examined(tmp_path: Path):
    found = diagnosis(tmp_path, reserved=0.95, allocated=0.9, capacity=None)
    assert found.not_examined["memory-limit"] == "the traces do not state the memory of the devices"


def test_without_memory_events_it_is_not_examined(tmp_path: Path):
    written = two_steps()
    events = [event for event in written.events if event["ph"] == "X"]
    write_trace_file(tmp_path / "rank0.json", events)
    import_run([tmp_path / "rank0.json"], tmp_path / "run")
    found = augury.open(tmp_path / "run").diagnose()
    assert "profile_memory=True" in found.not_examined["memory-limit"]
