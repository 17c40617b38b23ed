"""What a parallel strategy is asked, and what it answers: arrays, one entry a configuration."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from augury.build.pipeline_order import PipelineSchedule
from augury.core.cluster.cluster import Cluster
from augury.core.columns import F8, I8
from augury.oracle.fitting.corrections import Constants
from augury.oracle.layer_costs import LayerWork

Mask = NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class Options:
    group: int | None = None
    """Devices that a hybrid splits a sample over; None: those of a node."""
    micro_batches: int | None = None
    """Of a pipeline; None: four per stage, as far as the batch goes."""
    schedule: PipelineSchedule = PipelineSchedule.ONE_F_ONE_B
    chunks: int = 2
    """Of an interleaved pipeline: stages per device."""
    overlap: float = 0.0
    """Share of backward's time behind which gradients may be exchanged."""
    recompute: bool = False
    """Activations of a segment are made again in backward."""
    optimizer_copies: int = 1
    """Of the weights, as state: none for SGD, one with momentum, two for Adam."""
    is_bare: bool = False
    """The published table to the letter: all that layers touch is held, flows never share."""


@dataclass(frozen=True, kw_only=True, eq=False)
class StrategyCase:
    work: LayerWork
    cluster: Cluster
    constants: Constants
    options: Options
    devices: F8
    batch: F8
    """Global."""

    @cached_property
    def level(self) -> I8:
        """That holds all devices."""
        return self.cluster.level_of(self.devices)

    @property
    def group(self) -> int:
        return self.options.group or self.cluster.devices_per_host


class LimitReason(StrEnum):
    """Why a step takes longer than compute shared out evenly, or cannot be made at all."""

    GRADIENT = "gradient exchange"
    LAYERWISE = "layer-wise communication"
    POINT_TO_POINT = "point to point"
    HALO = "halo"
    GATHER = "parameter gathering"
    CONGESTION = "congestion"
    INPUT = "I/O and staging"
    MEMORY = "memory redundancy"
    FRAGMENTATION = "fragmentation"
    UPDATE = "weight update"
    IMBALANCE = "stage imbalance"
    REDUNDANCY = "computation redundancy"
    COUNT = "device-count limit"
    NONE = "compute"


@dataclass(frozen=True, kw_only=True, eq=False)
class CostPart:
    """One communication of a step: among ``group`` devices, across ``level``."""

    reason: LimitReason
    collective: str
    size_bytes: F8
    """Of the whole tensor, all messages of a step together."""
    group: F8
    level: I8
    time_s: F8
    exposed_s: F8


@dataclass(frozen=True, kw_only=True, eq=False)
class Estimate:
    strategy: str
    axes: dict[str, F8]
    compute_s: F8
    parts: list[CostPart]
    waiting_s: F8
    """For the slowest, across switches."""
    memory_bytes: dict[str, F8]
    max_devices: F8
    limit: str
    """What ``max_devices`` comes from."""
    losses: dict[LimitReason, F8] = field(default_factory=dict)
    """Seconds of ``compute_s`` beyond an even share."""
    refusals: list[tuple[Mask, str]] = field(default_factory=list)
    """Which configurations cannot be, and why; the first that applies counts."""

    @property
    def comm_s(self) -> F8:
        return sum((part.time_s for part in self.parts), self.waiting_s)

    @property
    def exposed_comm_s(self) -> F8:
        return sum((part.exposed_s for part in self.parts), self.waiting_s)

    @property
    def step_s(self) -> F8:
        return self.compute_s + self.exposed_comm_s

    @property
    def total_memory_bytes(self) -> F8:
        kinds = list(self.memory_bytes.values())
        return sum(kinds[1:], kinds[0])


class Strategy(Protocol):
    @property
    def name(self) -> str: ...

    def evaluate(self, case: StrategyCase) -> Estimate: ...


def sample_compute_s(case: StrategyCase) -> float:
    """Of one sample on one device, with what is recomputed."""
    work = case.work
    again = work.total_forward_s if case.options.recompute else 0.0
    return case.constants.compute_ratio * (work.sample_s + again)


def waiting_s(case: StrategyCase) -> F8:
    """Every tier of switches beyond the first adds its share."""
    return case.constants.crossing_s * np.maximum(0, case.level - 1)


def hidden_behind_backward(case: StrategyCase, time_s: F8, compute_s: F8) -> F8:
    return hidden_behind(
        case, time_s, compute_s * (case.work.total_backward_s / case.work.sample_s)
    )


def hidden_behind(case: StrategyCase, time_s: F8, layers_s: F8) -> F8:
    """What remains exposed: the last layer's share never has anything to hide behind."""
    overlap = case.options.overlap
    if not overlap:
        return time_s
    return np.maximum(time_s - overlap * layers_s, time_s / case.work.num_weighted)


def must_divide(amount: F8, by: F8, what: str) -> tuple[Mask, str]:
    return np.mod(amount, by) != 0, what


def gradient_bytes(case: StrategyCase) -> float:
    return case.work.weight_bytes
