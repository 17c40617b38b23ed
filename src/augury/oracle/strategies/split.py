"""Splitting of samples among devices: what filter, channel and spatial splits have in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from augury.core.columns import F8
from augury.oracle.graphs.layered import LayeredStep
from augury.oracle.graphs.memory_buffers import DeviceShares
from augury.oracle.layer_costs import LayerWork
from augury.oracle.strategy import CostPart, Mask, StrategyCase, sample_compute_s


@dataclass(frozen=True, kw_only=True, eq=False)
class SplitExchange:
    """Communication of one step among the devices of a split, gradients left out."""

    parts: list[CostPart]
    axes: dict[str, F8]
    fits: Mask | None = None
    """Whether samples can be split that many ways; None: always."""


@dataclass(frozen=True, kw_only=True)
class SplitTraits:
    """Words and names of constants by which the kinds of split differ."""

    axis: str
    redundancy: str
    group_redundancy: str
    """Redundancy inside groups of data parallelism."""
    group_messages: str
    limit: str
    counted: str
    """Plural of the thing that each device needs at least one of."""
    no_fit: str = ""


class Split(Protocol):
    """One way to split samples among devices."""

    @property
    def traits(self) -> SplitTraits: ...

    @property
    def has_whole_weights(self) -> bool:
        """Whether each device holds all weights, and exchanges gradients of all of them."""
        ...

    def max_devices(self, work: LayerWork) -> int: ...

    def launch_s(self, case: StrategyCase, num: F8) -> F8: ...

    def exchange(self, case: StrategyCase, *, num: F8, samples: F8) -> SplitExchange: ...

    def add_messages(self, step: LayeredStep, num: F8, samples: float) -> None:
        """Adds the communication of each layer to the graph of a step."""
        ...


@dataclass(frozen=True, kw_only=True, eq=False)
class SplitCompute:
    """Seconds of ``num`` devices that split ``samples``."""

    layers_s: F8
    launch_s: F8
    update_s: F8
    lost_s: F8
    """Time beyond an even share of the layers."""

    @property
    def total_s(self) -> F8:
        return self.layers_s + self.launch_s + self.update_s


def split_compute(
    split: Split, case: StrategyCase, *, num: F8, samples: F8, redundancy: str
) -> SplitCompute:
    whole_s = samples * sample_compute_s(case)
    layers_s = whole_s * split_factor(num, getattr(case.constants, redundancy))
    launch_s = split.launch_s(case, num)
    update_s = case.work.total_update_s
    return SplitCompute(
        layers_s=layers_s,
        launch_s=launch_s,
        update_s=np.full_like(num, update_s) if split.has_whole_weights else update_s / num,
        lost_s=layers_s - whole_s / num + launch_s,
    )


def split_factor(num: F8, redundancy: float) -> F8:
    """Time of layers split ``num`` ways over that of whole layers: a constant share, the
    redundancy, does not shrink."""
    return np.where(num > 1, redundancy + (1 - redundancy) / num, 1.0)


def memory_shares(split: Split, num: F8) -> dict[str, F8 | float]:
    """Shares of the weights and of a sample's activations that one device holds."""
    if split.has_whole_weights:
        return {"weights": 1.0, "items": 1 / num}
    return {"weights": 1 / num, "items": 1.0}


def split_step(
    split: Split,
    case: StrategyCase,
    num: F8,
    samples: float,
    *,
    redundancy: str,
    is_exchanged: bool,
) -> LayeredStep:
    """Graph of a step of ``num`` devices that split ``samples``, gradients left out."""
    constants = case.constants
    held = {kind: float(np.max(share)) for kind, share in memory_shares(split, num).items()}
    factor = constants.compute_ratio * samples * split_factor(num, getattr(constants, redundancy))
    step = LayeredStep(
        case=case,
        compute_factor=float(factor[0]),
        shares=DeviceShares(
            samples=samples,
            items=held["items"],
            weights=held["weights"],
            is_exchanged=is_exchanged,
        ),
        update_share=1.0 if split.has_whole_weights else 1 / float(num[0]),
    )
    if num[0] > 1:
        split.add_messages(step, num, samples)
    return step
