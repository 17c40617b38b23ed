"""Samples cut into tiles, one a device; borders go to neighbours."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from augury.core.columns import F8
from augury.oracle.layer_costs import LayerWork
from augury.oracle.strategies.split import Figures, LayerExchange
from augury.oracle.strategies.tiles import max_tiles, tiling_of
from augury.oracle.strategy import CostPart, LimitReason, StrategyCase


@dataclass(frozen=True, kw_only=True)
class TileSplit:
    figures: Figures
    has_whole_weights: bool = True

    def most(self, work: LayerWork) -> int:
        return max_tiles(work)

    def launch_s(self, case: StrategyCase, num: F8) -> F8:  # noqa: ARG002
        return np.zeros_like(num)

    def exchange(self, case: StrategyCase, *, num: F8, samples: F8) -> LayerExchange:
        """Both ways with every neighbour, of inputs in forward and of gradients in backward."""
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
        return LayerExchange(parts=[halos], axes=axes, fits=fits)


TILES = TileSplit(
    figures=Figures(
        axis="spatial",
        redundancy="spatial_redundancy",
        group_redundancy="spatial_redundancy",
        group_messages="spatial_messages",
        limit="the extents of the smallest convolved image",
        counted="tiles of the smallest image",
        no_fit="the image cannot be cut into so many tiles",
    )
)
