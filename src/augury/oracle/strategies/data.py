"""Data parallelism: each device has the whole model and a share of the batch."""

from __future__ import annotations

from dataclasses import dataclass

from augury.core.enums import OpKind
from augury.costs.closed_forms import all_reduce_s
from augury.oracle.graphs.layered import LayeredStep
from augury.oracle.graphs.memory_buffers import DeviceShares
from augury.oracle.graphs.messages import link_name, weight_messages
from augury.oracle.graphs.strategy_graph import LayeredStrategy
from augury.oracle.strategies.exchange import gradient_exchange, gradient_link
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
class Data(LayeredStrategy):
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
            limit="one sample per device",
            losses={LimitReason.UPDATE: update_s * (1 - 1 / devices)},
            refusals=[must_divide(batch, devices, "the batch does not divide by the devices")],
        )

    def layered_step(self, case: StrategyCase) -> LayeredStep:
        alpha, beta = gradient_link(case)
        summed = weight_messages(
            case,
            all_reduce_s,
            name="gradients",
            kind=OpKind.ALL_REDUCE,
            num=case.devices,
            link=link_name(case, case.level),
            alpha=alpha,
            beta=beta,
            messages=1,
        )
        return LayeredStep(
            case=case,
            compute_factor=data_parallel_factor(case),
            shares=data_parallel_shares(case),
            gradients={layer: [message] for layer, message in summed.items()},
        )


def data_parallel_factor(case: StrategyCase) -> float:
    """Factor from the time of one sample to that of a device's samples."""
    return case.constants.compute_ratio * float(case.batch[0] / case.devices[0])


def data_parallel_shares(case: StrategyCase, *, zero_stage: int = 0) -> DeviceShares:
    devices = float(case.devices[0])
    return DeviceShares(
        samples=float(case.batch[0]) / devices,
        is_exchanged=True,
        zero_stage=zero_stage,
        devices=devices,
    )
