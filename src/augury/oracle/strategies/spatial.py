"""Spatial parallelism: every sample is cut into tiles, one a device; borders go to neighbours."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from augury.oracle.cluster import F8
from augury.oracle.strategies.exchange import gradient_exchange, split_compute_s
from augury.oracle.strategies.tiles import max_tiles, tiling_of
from augury.oracle.strategy import (
    Case,
    Estimate,
    Mask,
    Part,
    Reason,
    gradient_bytes,
    sample_compute_s,
    waiting_s,
)
from augury.oracle.strategy_memory import memory_by_kind


@dataclass(frozen=True)
class Spatial:
    name: str = "spatial"

    def evaluate(self, case: Case) -> Estimate:
        devices, batch, work = case.devices, case.batch, case.work
        whole_s = batch * sample_compute_s(case)
        split_s = split_compute_s(whole_s, devices, case.constants.spatial_redundancy)
        compute_s = split_s + work.total_update_s
        halos, axes, fits = halo_exchange(case, num=devices, samples=batch)
        return Estimate(
            strategy=self.name,
            axes=axes,
            compute_s=compute_s,
            parts=[
                halos,
                gradient_exchange(
                    case,
                    num=devices,
                    size_bytes=gradient_bytes(case),
                    compute_s=compute_s,
                ),
            ],
            waiting_s=waiting_s(case),
            memory_bytes=memory_by_kind(case, batch, items=1 / devices, is_exchanged=True),
            max_devices=np.full_like(devices, max_tiles(work)),
            limit="the extents of the smallest convolved image",
            losses={
                Reason.REDUNDANCY: split_s - whole_s / devices,
                Reason.UPDATE: work.total_update_s * (1 - 1 / devices),
            },
            refusals=[(~fits, "the image cannot be cut into so many tiles")],
        )


def halo_exchange(case: Case, *, num: F8, samples: F8) -> tuple[Part, dict[str, F8], Mask]:
    """Both ways with every neighbour, of inputs in forward and of gradients in backward; how
    samples are cut along their extents, and whether they can be."""
    work, machine = case.work, case.machine
    numbers, where = np.unique(num, return_inverse=True)
    tilings = [tiling_of(work, int(number)) for number in numbers]
    items = np.array([tiling.halo_items for tiling in tilings])[where]
    exchanges = np.array([tiling.num_exchanges for tiling in tilings], float)[where]
    level = machine.level_of(num)
    beta = machine.seconds_per_byte(level) + case.constants.staging_s_per_byte
    size_bytes = samples * items * work.precision.item_bytes
    time_s = 2 * (2 * exchanges * machine.latency_s(level) + size_bytes * beta)
    part = Part(
        reason=Reason.HALO,
        collective="halo exchange",
        size_bytes=2 * size_bytes,
        group=num,
        level=level,
        time_s=time_s,
        exposed_s=time_s,
    )
    extents = len(tilings[0].cuts)
    names = ("width", "height", "depth")[:extents]
    axes = {
        name: np.array([tiling.cuts[-1 - i] for tiling in tilings], float)[where]
        for i, name in enumerate(names)
    }
    return part, axes, np.array([tiling.fits for tiling in tilings])[where]
