"""How devices that work on the same samples share them out: what one strategy that splits layers
or images differs in from another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from augury.core.columns import F8
from augury.oracle.layer_costs import LayerWork
from augury.oracle.strategy import CostPart, Mask, StrategyCase, sample_compute_s


@dataclass(frozen=True, kw_only=True, eq=False)
class LayerExchange:
    """What those devices tell each other in a step, beside gradients."""

    parts: list[CostPart]
    axes: dict[str, F8]
    fits: Mask | None = None
    """Whether samples can be cut at all; None: always."""


@dataclass(frozen=True, kw_only=True)
class Figures:
    """Words and names of constants, in which splits of one kind differ."""

    axis: str
    redundancy: str
    group_redundancy: str
    """Inside groups of data parallelism."""
    group_messages: str
    limit: str
    counted: str
    """What there must be one of for every device."""
    no_fit: str = ""


class Split(Protocol):
    @property
    def figures(self) -> Figures: ...

    @property
    def has_whole_weights(self) -> bool:
        """Whether every device holds all weights, and has gradients of all of them to exchange."""
        ...

    def most(self, work: LayerWork) -> int:
        """Devices."""
        ...

    def launch_s(self, case: StrategyCase, num: F8) -> F8: ...

    def exchange(self, case: StrategyCase, *, num: F8, samples: F8) -> LayerExchange: ...


@dataclass(frozen=True, kw_only=True, eq=False)
class SplitCompute:
    """Seconds of ``num`` devices with ``samples`` between them."""

    layers_s: F8
    launch_s: F8
    update_s: F8
    lost_s: F8
    """Beyond an even share of the layers."""

    @property
    def total_s(self) -> F8:
        return self.layers_s + self.launch_s + self.update_s


def split_compute(
    split: Split, case: StrategyCase, *, num: F8, samples: F8, redundancy: str
) -> SplitCompute:
    whole_s = samples * sample_compute_s(case)
    layers_s = whole_s * shrunk(num, getattr(case.constants, redundancy))
    launch_s = split.launch_s(case, num)
    update_s = case.work.total_update_s
    return SplitCompute(
        layers_s=layers_s,
        launch_s=launch_s,
        update_s=np.full_like(num, update_s) if split.has_whole_weights else update_s / num,
        lost_s=layers_s - whole_s / num + launch_s,
    )


def shrunk(num: F8, redundancy: float) -> F8:
    """Time of layers split ``num`` ways over that of whole ones: a share does not shrink."""
    return np.where(num > 1, redundancy + (1 - redundancy) / num, 1.0)


def memory_shares(split: Split, num: F8) -> dict[str, F8 | float]:
    """Of weights and of a sample's activations."""
    if split.has_whole_weights:
        return {"weights": 1.0, "items": 1 / num}
    return {"weights": 1 / num, "items": 1.0}
