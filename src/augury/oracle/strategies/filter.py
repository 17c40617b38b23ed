"""Filter parallelism: every layer's filters are shared out; outputs are gathered in forward,
gradients of inputs summed in backward."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from augury.oracle.strategies.exchange import layer_exchange, pieces_s, split_compute_s
from augury.oracle.strategy import (
    Case,
    Estimate,
    Reason,
    sample_compute_s,
    waiting_s,
)
from augury.oracle.strategy_memory import memory_by_kind


@dataclass(frozen=True)
class Filter:
    name: str = "filter"

    def evaluate(self, case: Case) -> Estimate:
        devices, batch = case.devices, case.batch
        whole_s = batch * sample_compute_s(case)
        split_s = split_compute_s(whole_s, devices, case.constants.filter_redundancy)
        launch_s = pieces_s(case, devices)
        return Estimate(
            strategy=self.name,
            axes={"filter": devices},
            compute_s=split_s + launch_s + case.work.total_update_s / devices,
            parts=layer_exchange(
                case,
                num=devices,
                samples=batch,
                contention=case.constants.filter_contention,
                pieces=True,
            ),
            waiting_s=waiting_s(case),
            memory_bytes=memory_by_kind(case, batch, weights=1 / devices),
            max_devices=np.full_like(devices, case.work.min_filters),
            limit="the fewest filters of a layer",
            losses={Reason.REDUNDANCY: split_s - whole_s / devices + launch_s},
        )
