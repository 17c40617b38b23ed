"""The input and the estimate of a parallel strategy: arrays with one entry per configuration."""

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
from augury.core.graph.graph import Graph
from augury.oracle.fitting.corrections import Constants
from augury.oracle.layer_costs import LayerWork

Mask = NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class Options:
    group: int | None = None
    """Number of devices that a hybrid splits a sample over; None: those of a host."""
    micro_batches: int | None = None
    """Number of micro-batches of a pipeline; None: four per stage, if the batch allows."""
    schedule: PipelineSchedule = PipelineSchedule.ONE_F_ONE_B
    chunks: int = 2
    """Stages per device of an interleaved pipeline."""
    overlap: float = 0.0
    """Share of backward with which the exchange of gradients may overlap."""
    recompute: bool = False
    """Whether activations of a segment are recomputed in backward."""
    optimizer_copies: int = 1
    """Optimizer state in copies of the weights: 0 for SGD, 1 with momentum, 2 for Adam."""
    is_bare: bool = False
    """Use the published equations literally: all inputs and outputs are held, and flows do not
    share links."""


@dataclass(frozen=True, kw_only=True, eq=False)
class StrategyCase:
    work: LayerWork
    cluster: Cluster
    constants: Constants
    options: Options
    devices: F8
    batch: F8
    """Global batch."""

    @cached_property
    def level(self) -> I8:
        """Lowest level that holds all devices."""
        return self.cluster.level_of(self.devices)

    @property
    def group(self) -> int:
        return self.options.group or self.cluster.devices_per_host


class LimitReason(StrEnum):
    """Reasons why a step takes longer than evenly divided compute, or is infeasible."""

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
    """Size of the whole tensor, all messages of a step together."""
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
    """Waiting for the slowest device across tiers of switches."""
    memory_bytes: dict[str, F8]
    max_devices: F8
    limit: str
    """Reason for ``max_devices``."""
    losses: dict[LimitReason, F8] = field(default_factory=dict)
    """Seconds of ``compute_s`` beyond an even share, by reason."""
    refusals: list[tuple[Mask, str]] = field(default_factory=list)
    """Masks of infeasible configurations, with the reason; the first that applies is reported."""

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

    @property
    def has_bubbles(self) -> bool:
        """Whether devices wait for each other's compute even if communication takes no time."""
        ...

    def evaluate(self, case: StrategyCase) -> Estimate:
        """Returns the closed form of all configurations."""
        ...

    def graph(self, case: StrategyCase, meta: dict[str, str], *, whole: bool) -> Graph:
        """Returns the graph of a case with one configuration; with ``whole``, of all devices."""
        ...


def sample_compute_s(case: StrategyCase) -> float:
    """Compute of one sample on one device, recomputation included."""
    work = case.work
    again = work.total_forward_s if case.options.recompute else 0.0
    return case.constants.compute_ratio * (work.sample_s + again)


def waiting_s(case: StrategyCase) -> F8:
    """Waiting for stragglers: a constant per tier of switches beyond the first."""
    return case.constants.crossing_s * np.maximum(0, case.level - 1)


def exposed_behind_backward(case: StrategyCase, time_s: F8, compute_s: F8) -> F8:
    return exposed_behind(
        case, time_s, compute_s * (case.work.total_backward_s / case.work.sample_s)
    )


def exposed_behind(case: StrategyCase, time_s: F8, layers_s: F8) -> F8:
    """Exposed communication of ``time_s`` that overlaps with ``layers_s`` of compute; the share of
    the last layer has nothing to overlap with."""
    overlap = case.options.overlap
    if not overlap:
        return time_s
    return np.maximum(time_s - overlap * layers_s, time_s / case.work.num_weighted)


def must_divide(amount: F8, by: F8, reason: str) -> tuple[Mask, str]:
    return np.mod(amount, by) != 0, reason


def gradient_bytes(case: StrategyCase) -> float:
    return case.work.weight_bytes
