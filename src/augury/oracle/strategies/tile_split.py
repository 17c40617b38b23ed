"""Split of samples into tiles, one per device, with halo exchange between neighbours."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from augury.core.columns import F8
from augury.core.enums import OpKind
from augury.oracle.graphs.layered import LayeredStep, LayerMessage
from augury.oracle.graphs.messages import link_name
from augury.oracle.graphs.program import Participants
from augury.oracle.layer_costs import LayerWork
from augury.oracle.strategies.split import SplitExchange, SplitTraits
from augury.oracle.strategies.tiling import halos_of, max_tiles, tiling_of
from augury.oracle.strategy import CostPart, LimitReason, StrategyCase


@dataclass(frozen=True, kw_only=True)
class TileSplit:
    traits: SplitTraits
    has_whole_weights: bool = True

    def max_devices(self, work: LayerWork) -> int:
        return max_tiles(work)

    def launch_s(self, case: StrategyCase, num: F8) -> F8:  # noqa: ARG002
        return np.zeros_like(num)

    def exchange(self, case: StrategyCase, *, num: F8, samples: F8) -> SplitExchange:
        """Halos go both ways between neighbours: inputs in forward, gradients in backward."""
        work, cluster = case.work, case.cluster
        numbers, where = np.unique(num, return_inverse=True)
        tilings = [tiling_of(work, int(number)) for number in numbers]
        items = np.array([tiling.halo_items for tiling in tilings])[where]
        exchanges = np.array([tiling.num_exchanges for tiling in tilings], float)[where]
        level = cluster.level_of(num)
        beta = cluster.seconds_per_byte(level) + case.constants.staging_s_per_byte
        size_bytes = samples * items * work.precision.item_bytes
        time_s = 2 * (2 * exchanges * cluster.latency_s(level) + size_bytes * beta)
        halos = CostPart(
            reason=LimitReason.HALO,
            collective="halo exchange",
            size_bytes=2 * size_bytes,
            group=num,
            level=level,
            time_s=time_s,
            exposed_s=time_s,
        )
        names = ("width", "height", "depth")[: len(tilings[0].cuts)]
        axes = {
            name: np.array([tiling.cuts[-1 - i] for tiling in tilings], float)[where]
            for i, name in enumerate(names)
        }
        fits = np.array([tiling.fits for tiling in tilings])[where]
        return SplitExchange(parts=[halos], axes=axes, fits=fits)

    def add_messages(self, step: LayeredStep, num: F8, samples: float) -> None:
        """Halos of inputs before forward, of gradients of outputs before backward."""
        case, work = step.case, step.case.work
        level = case.cluster.level_of(num)
        alpha = float(case.cluster.latency_s(level)[0])
        beta = float(case.cluster.seconds_per_byte(level)[0]) + case.constants.staging_s_per_byte
        for layer, input_items, output_items in halos_of(work, tiling_of(work, int(num[0])).cuts):
            for messages, items in (
                (step.before_forward, input_items),
                (step.before_backward, output_items),
            ):
                size_bytes = 2 * samples * items * work.precision.item_bytes
                messages[layer] = LayerMessage(
                    name="halo",
                    kind=OpKind.ALL_TO_ALL,
                    time_s=2 * alpha + size_bytes * beta,
                    size_bytes=size_bytes,
                    link=link_name(case, level),
                    participants=Participants.GROUP,
                )


TILES = TileSplit(
    traits=SplitTraits(
        axis="spatial",
        redundancy="spatial_redundancy",
        group_redundancy="spatial_redundancy",
        group_messages="spatial_messages",
        limit="the extents of the smallest convolved image",
        counted="tiles of the smallest image",
        no_fit="the image cannot be cut into that many tiles",
    )
)
