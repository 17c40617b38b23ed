"""Feasibility and bottleneck of each configuration of an estimate."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from augury.core.columns import F8
from augury.core.units import format_bytes
from augury.oracle.strategy import Estimate, LimitReason, Mask, StrategyCase

REASONS = tuple(LimitReason)
NOTICEABLE = 0.02
"""Share of a step below which a loss is no bottleneck."""
NEARLY_FULL = 0.92
"""Share of a device's memory beyond which fragmentation of the allocator decides."""

I1 = NDArray[np.int8]


@dataclass(frozen=True, kw_only=True, eq=False)
class Judged:
    """Estimate with its feasibility and bottleneck; arrays have one entry per configuration."""

    case: StrategyCase
    estimate: Estimate
    step_s: F8
    compute_s: F8
    comm_s: F8
    exposed_comm_s: F8
    memory_bytes: F8
    memory_limit_bytes: float
    feasible: Mask
    bottleneck: I1
    """Index into REASONS."""
    is_replayed: Mask | None = None
    """Configurations whose step was replayed; None: all steps are closed forms."""

    def why(self, index: int) -> str | None:
        """Returns the reason why a configuration is infeasible, or None."""
        if self.feasible[index]:
            return None
        case, estimate = self.case, self.estimate
        devices = int(case.devices[index])
        if devices > case.cluster.num_devices:
            return f"{case.cluster.name} has {case.cluster.num_devices:,} devices"
        most = int(estimate.max_devices[index])
        if devices > most:
            return f"at most {most:,} devices: {estimate.limit}"
        for refused, why in estimate.refusals:
            if refused[index]:
                return why
        needed = format_bytes(float(self.memory_bytes[index]))
        return f"needs {needed} of {format_bytes(self.memory_limit_bytes)} per device"

    def limit(self, index: int) -> str:
        return f"{int(self.estimate.max_devices[index]):,} devices: {self.estimate.limit}"


def judge(
    estimate: Estimate, case: StrategyCase, *, memory_limit_bytes: float | None = None
) -> Judged:
    most_bytes = memory_limit_bytes or float(case.cluster.described_device.memory_bytes)
    exposed_s = estimate.exposed_comm_s
    step_s = estimate.compute_s + exposed_s
    read_s = reading_s(case)
    if read_s is not None:
        late_s = np.maximum(0.0, read_s - step_s)
        estimate.losses[LimitReason.INPUT] = late_s
        step_s = step_s + late_s
    memory = estimate.total_memory_bytes
    too_many = (case.devices > estimate.max_devices) | (case.devices > case.cluster.num_devices)
    refused = too_many
    for mask, _ in estimate.refusals:
        refused = refused | mask
    too_large = memory > most_bytes
    return Judged(
        case=case,
        estimate=estimate,
        step_s=step_s,
        compute_s=estimate.compute_s,
        comm_s=estimate.comm_s,
        exposed_comm_s=exposed_s,
        memory_bytes=memory,
        memory_limit_bytes=most_bytes,
        feasible=~(refused | too_large),
        bottleneck=_bottleneck(
            estimate, step_s, refused, too_large, memory > NEARLY_FULL * most_bytes
        ),
    )


def _bottleneck(
    estimate: Estimate, step_s: F8, refused: Mask, too_large: Mask, is_nearly_full: Mask
) -> I1:
    """Reason of the largest loss; infeasible configurations have reasons of their own."""
    sums: dict[LimitReason, F8] = {**estimate.losses, LimitReason.CONGESTION: estimate.waiting_s}
    for part in estimate.parts:
        before = sums.get(part.reason)
        sums[part.reason] = part.exposed_s if before is None else before + part.exposed_s
    lost_s = np.array(list(sums.values()))
    largest = lost_s.argmax(axis=0)
    found: I1 = np.array([_NUMBER[reason] for reason in sums], np.int8)[largest]
    is_small = lost_s.max(axis=0) <= NOTICEABLE * step_s
    found[is_small] = _NUMBER[LimitReason.NONE]
    found[is_small & is_nearly_full] = _NUMBER[LimitReason.FRAGMENTATION]
    found[too_large] = _NUMBER[LimitReason.MEMORY]
    found[refused] = _NUMBER[LimitReason.COUNT]
    return found


def reading_s(case: StrategyCase) -> F8 | None:
    """Time in which all hosts together read the samples of a step; None if not stated."""
    bandwidth = case.cluster.input_bandwidth_bytes_per_s
    if bandwidth is None:
        return None
    size_bytes = 4.0 * case.work.sample_items
    nodes = np.ceil(case.devices / case.cluster.devices_per_host)
    return case.batch * size_bytes / (nodes * bandwidth)


_NUMBER = {reason: number for number, reason in enumerate(REASONS)}
