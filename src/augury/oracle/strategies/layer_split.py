"""Split of layers by filters or by channels.

Filters: outputs are gathered in forward, gradients of inputs are summed in backward. Channels:
outputs are summed in forward, gradients of inputs are gathered in backward.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from augury.core.columns import F8
from augury.core.enums import OpKind
from augury.costs.closed_forms import all_gather_s
from augury.oracle.graphs.layered import LayeredStep, LayerMessage
from augury.oracle.graphs.messages import link_name
from augury.oracle.graphs.program import Participants
from augury.oracle.layer_costs import LayerWork
from augury.oracle.strategies.exchange import layer_exchange, layer_link, pieces_s
from augury.oracle.strategies.split import SplitExchange, SplitTraits
from augury.oracle.strategy import StrategyCase


@dataclass(frozen=True, kw_only=True)
class LayerSplit:
    traits: SplitTraits
    contention: str
    gathers_outputs: bool
    """Outputs are gathered in pieces, each with a launch overhead; otherwise they are summed."""
    has_whole_weights: bool = False

    def max_devices(self, work: LayerWork) -> int:
        return work.min_filters if self.gathers_outputs else work.min_channels

    def launch_s(self, case: StrategyCase, num: F8) -> F8:
        return pieces_s(case, num) if self.gathers_outputs else np.zeros_like(num)

    def exchange(self, case: StrategyCase, *, num: F8, samples: F8) -> SplitExchange:
        parts = layer_exchange(
            case,
            num=num,
            samples=samples,
            contention=getattr(case.constants, self.contention),
            has_pieces=self.gathers_outputs,
        )
        return SplitExchange(parts=parts, axes={self.traits.axis: num})

    def add_messages(self, step: LayeredStep, num: F8, samples: float) -> None:
        """Outputs of all weighted layers but the last are exchanged; gathered outputs are assembled
        piece by piece, on the device and in the exchange."""
        case, work = step.case, step.case.work
        level = case.cluster.level_of(num)
        alpha, beta = layer_link(case, level, getattr(case.constants, self.contention))
        piece_s = case.constants.piece_s * float(num[0]) if self.gathers_outputs else 0.0
        for layer in work.weighted_places:
            size_bytes, once_s = 0.0, 0.0
            if layer != work.weighted_places[-1]:
                size_bytes = samples * float(work.output_items[layer]) * work.precision.item_bytes
                once_s = float(all_gather_s(num, size_bytes, alpha, beta)[0])
            if piece_s:
                step.launch_s[layer] = piece_s
            gathered = LayerMessage(
                name="gather" if once_s else "put together",
                kind=OpKind.ALL_GATHER,
                time_s=once_s + piece_s,
                size_bytes=size_bytes,
                link=link_name(case, level),
                participants=Participants.GROUP,
            )
            summed = LayerMessage(
                name="sum",
                kind=OpKind.ALL_REDUCE,
                time_s=2 * once_s,
                size_bytes=size_bytes,
                link=link_name(case, level),
                participants=Participants.GROUP,
            )
            forward, backward = (gathered, summed) if self.gathers_outputs else (summed, gathered)
            if forward.time_s:
                step.after_forward[layer] = forward
            if backward.time_s:
                step.before_backward[layer] = backward


FILTER = LayerSplit(
    traits=SplitTraits(
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
    traits=SplitTraits(
        axis="channel",
        redundancy="channel_redundancy",
        group_redundancy="channel_redundancy",
        group_messages="group_messages",
        limit="the fewest channels of a layer after the first",
        counted="channels of a layer",
    ),
    contention="channel_contention",
    gathers_outputs=False,
)
