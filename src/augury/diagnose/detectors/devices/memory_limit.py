"""Detects devices whose memory is nearly full, or that lose much of it to fragmentation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from augury.build.recorded.device.joined_windows import watched_steps
from augury.core.results.diagnosis import Figure, Finding, Place
from augury.core.trace.trace import Trace
from augury.core.units import format_bytes, format_percent
from augury.diagnose.detectors.detector import Detector
from augury.diagnose.examined_run import ExaminedRun
from augury.diagnose.findings import hosts_of, share_figure
from augury.diagnose.phrases import ranks_words
from augury.passes.removals.fast_host import NO_DEVICE

MEMORY_LIMIT = "memory-limit"
_FULL = 0.9
"""Share of the capacity from which reserved memory is near its limit."""
_FRAGMENTED, _HIGH_USE = 0.15, 0.75
"""Shares of the capacity: reserved but never allocated, and reserved."""


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """Memory of one rank's device at the peak of reserved memory."""

    rank: int
    capacity_bytes: int
    reserved_bytes: int
    allocated_bytes: int
    """Most that was allocated while that much was reserved."""
    peak_bytes: int
    """Most that was allocated at any time."""

    @property
    def share(self) -> float:
        return self.reserved_bytes / self.capacity_bytes

    @property
    def fragmented(self) -> float:
        """Share of the capacity that was reserved and not allocated."""
        return (self.reserved_bytes - self.allocated_bytes) / self.capacity_bytes

    @property
    def is_fragmented(self) -> bool:
        return self.fragmented >= _FRAGMENTED and self.share >= _HIGH_USE

    @property
    def is_near_limit(self) -> bool:
        return self.share >= _FULL or self.is_fragmented


def _examine(run: ExaminedRun) -> list[Finding]:
    assert run.trace is not None
    near = [one for one in device_memory(run.trace) if one.is_near_limit]
    # Fragmentation has another remedy than memory that training needs.
    fragmented = [one for one in near if one.is_fragmented]
    parts = (fragmented, [one for one in near if not one.is_fragmented])
    return [_finding(run, own) for own in parts if own]


def _finding(run: ExaminedRun, own: list[DeviceMemory]) -> Finding:
    worst = max(own, key=lambda one: one.share)
    assert run.trace is not None
    numbers = np.unique(run.trace.steps.rank[watched_steps(run.trace)])
    ranks = [row for row, rank in enumerate(numbers.tolist()) if rank in {one.rank for one in own}]
    title = (
        f"memory of {ranks_words(ranks)} is near its limit: {format_percent(100 * worst.share)} of"
        f" {format_bytes(worst.capacity_bytes)} are reserved"
    )
    if worst.is_fragmented:
        title += f", {format_percent(100 * worst.fragmented)} by fragmentation"
        action = "Let segments of memory grow, so that new buffers fit into free memory."
    else:
        action = (
            "Recompute activations or use a smaller batch before training runs out of memory; near"
            " the limit, the allocator frees and requests memory again, and waits for the device."
        )
    return Finding(
        kind=MEMORY_LIMIT,
        title=title,
        where=Place(ranks=ranks, hosts=hosts_of(run.graph, ranks)),
        evidence=[
            Figure(name="capacity of the device", value=float(worst.capacity_bytes), unit="bytes"),
            Figure(name="peak reserved", value=float(worst.reserved_bytes), unit="bytes"),
            Figure(name="peak allocated", value=float(worst.peak_bytes), unit="bytes"),
            share_figure("reserved share of the capacity", worst.share),
            share_figure(
                "reserved and not allocated, as a share of the capacity", worst.fragmented
            ),
        ],
        # How much longer a step takes because of it is not recorded.
        predicted_step_ns=None,
        interval_ns=None,
        gain_pct=None,
        gain_interval_pct=None,
        confidence="high" if worst.peak_bytes >= _FULL * worst.capacity_bytes else "medium",
        action=action,
        command="PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True" if worst.is_fragmented else "",
    )


def device_memory(trace: Trace) -> list[DeviceMemory]:
    """Returns the memory of each rank of the graph whose allocator was recorded and whose device
    is known."""
    table = trace.allocations
    numbers = set(np.unique(trace.steps.rank[watched_steps(trace)]).tolist())
    found = []
    for facts in trace.ranks:
        own = slice(*np.searchsorted(table.rank, [facts.rank, facts.rank + 1]).tolist())
        capacity = facts.device_memory_bytes
        if own.start == own.stop or facts.rank not in numbers or not capacity or capacity < 0:
            continue
        reserved, allocated = table.reserved_bytes[own], table.allocated_bytes[own]
        peak = int(reserved.max())
        found.append(
            DeviceMemory(
                rank=facts.rank,
                capacity_bytes=capacity,
                reserved_bytes=peak,
                allocated_bytes=int(allocated[reserved == peak].max()),
                peak_bytes=int(allocated.max()),
            )
        )
    return found


def _reason(run: ExaminedRun) -> str:
    if not run.is_on_devices or run.trace is None:
        return NO_DEVICE
    if not len(run.trace.allocations):
        return "the traces have no memory events (profile_memory=True)"
    if not device_memory(run.trace):
        return "the traces do not state the memory of the devices"
    return ""


MEMORY_LIMITS = Detector(kinds=(MEMORY_LIMIT,), reason_against=_reason, examine=_examine)
