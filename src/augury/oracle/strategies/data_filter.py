"""Filters shared out inside groups, the batch among groups."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from augury.oracle.strategies.exchange import (
    gradient_exchange,
    layer_exchange,
    pieces_s,
    split_compute_s,
)
from augury.oracle.strategies.groups import between_groups, group_refusals
from augury.oracle.strategy import (
    Case,
    Estimate,
    Reason,
    gradient_bytes,
    sample_compute_s,
    waiting_s,
)
from augury.oracle.strategy_memory import memory_by_kind


@dataclass(frozen=True)
class DataFilter:
    name: str = "data_filter"

    def evaluate(self, case: Case) -> Estimate:
        devices, work, constants = case.devices, case.work, case.constants
        group = np.full_like(devices, case.group)
        groups = between_groups(case)
        samples = case.batch / groups
        whole_s = samples * sample_compute_s(case)
        split_s = split_compute_s(whole_s, group, constants.group_redundancy)
        launch_s = pieces_s(case, group)
        update_s = work.total_update_s / group
        compute_s = split_s + launch_s + update_s
        return Estimate(
            strategy=self.name,
            axes={"data": groups, "filter": group},
            compute_s=compute_s,
            parts=[
                *layer_exchange(
                    case,
                    num=group,
                    samples=samples,
                    contention=constants.filter_contention,
                    pieces=True,
                ),
                gradient_exchange(
                    case,
                    num=groups,
                    size_bytes=gradient_bytes(case) / case.group,
                    compute_s=compute_s,
                    messages=1 + constants.group_messages * (work.num_weighted - 1),
                    flows=case.group,
                ),
            ],
            waiting_s=waiting_s(case),
            memory_bytes=memory_by_kind(case, samples, weights=1 / group, is_exchanged=True),
            max_devices=case.batch * min(case.group, work.min_filters),
            limit="one sample a group, and the fewest filters of a layer in a group",
            losses={
                Reason.REDUNDANCY: split_s - whole_s / group + launch_s,
                Reason.UPDATE: update_s * (1 - 1 / groups),
            },
            refusals=group_refusals(case, work.min_filters, "filters of a layer"),
        )
