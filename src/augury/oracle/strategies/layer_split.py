"""Filters or channels shared out. Filters: outputs are gathered in forward, gradients of inputs
summed in backward. Channels: outputs are summed in forward, gradients of inputs gathered."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from augury.core.columns import F8
from augury.oracle.layer_costs import LayerWork
from augury.oracle.strategies.exchange import layer_exchange, pieces_s
from augury.oracle.strategies.split import Figures, LayerExchange
from augury.oracle.strategy import StrategyCase


@dataclass(frozen=True, kw_only=True)
class LayerSplit:
    figures: Figures
    contention: str
    gathers_outputs: bool
    """Piece by piece, each launched; else they are summed."""
    has_whole_weights: bool = False

    def most(self, work: LayerWork) -> int:
        return work.min_filters if self.gathers_outputs else work.min_channels

    def launch_s(self, case: StrategyCase, num: F8) -> F8:
        return pieces_s(case, num) if self.gathers_outputs else np.zeros_like(num)

    def exchange(self, case: StrategyCase, *, num: F8, samples: F8) -> LayerExchange:
        parts = layer_exchange(
            case,
            num=num,
            samples=samples,
            contention=getattr(case.constants, self.contention),
            pieces=self.gathers_outputs,
        )
        return LayerExchange(parts=parts, axes={self.figures.axis: num})


FILTER = LayerSplit(
    figures=Figures(
        axis="filter",
        redundancy="filter_redundancy",
        group_redundancy="group_redundancy",
        group_messages="group_messages",
        limit="the fewest filters of a layer",
        counted="filters of a layer",
    ),
    contention="filter_contention",
    gathers_outputs=True,
)
CHANNEL = LayerSplit(
    figures=Figures(
        axis="channel",
        redundancy="channel_redundancy",
        group_redundancy="channel_redundancy",
        group_messages="group_messages",
        limit="the fewest channels of a layer behind the first",
        counted="channels of a layer",
    ),
    contention="channel_contention",
    gathers_outputs=False,
)
