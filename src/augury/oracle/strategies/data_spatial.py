"""Samples cut into tiles inside groups, the batch among groups; gradients are summed inside a
group, then between groups."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from augury.oracle.cluster import F8
from augury.oracle.network import all_reduce_s
from augury.oracle.strategies.exchange import gradient_exchange, split_compute_s
from augury.oracle.strategies.groups import between_groups, group_refusals
from augury.oracle.strategies.spatial import halo_exchange
from augury.oracle.strategies.tiles import max_tiles
from augury.oracle.strategy import (
    Case,
    Estimate,
    Part,
    Reason,
    gradient_bytes,
    sample_compute_s,
    waiting_s,
)
from augury.oracle.strategy_memory import memory_by_kind


@dataclass(frozen=True)
class DataSpatial:
    name: str = "data_spatial"

    def evaluate(self, case: Case) -> Estimate:
        devices, work, constants = case.devices, case.work, case.constants
        group = np.full_like(devices, case.group)
        groups = between_groups(case)
        samples = case.batch / groups
        whole_s = samples * sample_compute_s(case)
        split_s = split_compute_s(whole_s, group, constants.spatial_redundancy)
        compute_s = split_s + work.total_update_s
        halos, axes, fits = halo_exchange(case, num=group, samples=samples)
        return Estimate(
            strategy=self.name,
            axes={"data": groups, **axes},
            compute_s=compute_s,
            parts=[
                halos,
                _inside(case, group),
                gradient_exchange(
                    case,
                    num=groups,
                    size_bytes=gradient_bytes(case),
                    compute_s=compute_s,
                    messages=1 + constants.spatial_messages * (work.num_weighted - 1),
                ),
            ],
            waiting_s=waiting_s(case),
            memory_bytes=memory_by_kind(case, samples, items=1 / group, is_exchanged=True),
            max_devices=case.batch * min(case.group, max_tiles(work)),
            limit="one sample a group, and the extents of the smallest convolved image in a group",
            losses={
                Reason.REDUNDANCY: split_s - whole_s / group,
                Reason.UPDATE: work.total_update_s * (1 - 1 / devices),
            },
            refusals=[
                *group_refusals(case, max_tiles(work), "tiles of the smallest image"),
                (~fits, "the image cannot be cut into so many tiles"),
            ],
        )


def _inside(case: Case, group: F8) -> Part:
    machine = case.machine
    level = machine.level_of(group)
    size_bytes = gradient_bytes(case)
    time_s = all_reduce_s(
        group, size_bytes, machine.latency_s(level), machine.seconds_per_byte(level)
    )
    return Part(
        reason=Reason.GRADIENT,
        collective="all-reduce",
        size_bytes=np.full_like(group, size_bytes),
        group=group,
        level=level,
        time_s=time_s,
        exposed_s=time_s,
    )
