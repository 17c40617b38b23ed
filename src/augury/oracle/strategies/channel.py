"""Channel parallelism: every layer's input channels are shared out; outputs are summed in forward,
gradients of inputs gathered in backward."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from augury.oracle.strategies.exchange import layer_exchange, split_compute_s
from augury.oracle.strategy import (
    Case,
    Estimate,
    Reason,
    sample_compute_s,
    waiting_s,
)
from augury.oracle.strategy_memory import memory_by_kind


@dataclass(frozen=True)
class Channel:
    name: str = "channel"

    def evaluate(self, case: Case) -> Estimate:
        devices, batch = case.devices, case.batch
        whole_s = batch * sample_compute_s(case)
        split_s = split_compute_s(whole_s, devices, case.constants.channel_redundancy)
        return Estimate(
            strategy=self.name,
            axes={"channel": devices},
            compute_s=split_s + case.work.total_update_s / devices,
            parts=layer_exchange(
                case,
                num=devices,
                samples=batch,
                contention=case.constants.channel_contention,
                pieces=False,
            ),
            waiting_s=waiting_s(case),
            memory_bytes=memory_by_kind(case, batch, weights=1 / devices),
            max_devices=np.full_like(devices, case.work.min_channels),
            limit="the fewest channels of a layer behind the first",
            losses={Reason.REDUNDANCY: split_s - whole_s / devices},
        )
