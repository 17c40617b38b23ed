"""Data parallelism: every device has the whole model and a share of the batch."""

from __future__ import annotations

from dataclasses import dataclass

from augury.oracle.strategies.exchange import gradient_exchange
from augury.oracle.strategy import (
    Estimate,
    LimitReason,
    StrategyCase,
    gradient_bytes,
    must_divide,
    sample_compute_s,
    waiting_s,
)
from augury.oracle.strategy_memory import memory_by_kind


@dataclass(frozen=True)
class Data:
    name: str = "data"

    def evaluate(self, case: StrategyCase) -> Estimate:
        devices, batch = case.devices, case.batch
        samples = batch / devices
        update_s = case.work.total_update_s
        compute_s = samples * sample_compute_s(case) + update_s
        return Estimate(
            strategy=self.name,
            axes={"data": devices},
            compute_s=compute_s,
            parts=[
                gradient_exchange(
                    case,
                    num=devices,
                    size_bytes=gradient_bytes(case),
                    compute_s=compute_s,
                )
            ],
            waiting_s=waiting_s(case),
            memory_bytes=memory_by_kind(case, samples, is_exchanged=True),
            max_devices=batch,
            limit="one sample a device",
            losses={LimitReason.UPDATE: update_s * (1 - 1 / devices)},
            refusals=[must_divide(batch, devices, "the batch does not divide by the devices")],
        )
