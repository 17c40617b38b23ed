"""Filter, channel and spatial parallelism: all devices split the same samples."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from augury.oracle.graphs.layered import LayeredStep
from augury.oracle.graphs.messages import gradient_messages
from augury.oracle.graphs.strategy_graph import LayeredStrategy
from augury.oracle.strategies.exchange import gradient_exchange, gradient_link
from augury.oracle.strategies.split import Split, memory_shares, split_compute, split_step
from augury.oracle.strategy import Estimate, LimitReason, StrategyCase, gradient_bytes, waiting_s
from augury.oracle.strategy_memory import memory_by_kind


@dataclass(frozen=True)
class PureSplit(LayeredStrategy):
    split: Split
    name: str

    def evaluate(self, case: StrategyCase) -> Estimate:
        devices, batch, split = case.devices, case.batch, self.split
        traits = split.traits
        compute = split_compute(
            split, case, num=devices, samples=batch, redundancy=traits.redundancy
        )
        exchange = split.exchange(case, num=devices, samples=batch)
        parts, losses = exchange.parts, {LimitReason.REDUNDANCY: compute.lost_s}
        if split.has_whole_weights:
            losses[LimitReason.UPDATE] = compute.update_s * (1 - 1 / devices)
            parts.append(
                gradient_exchange(
                    case,
                    num=devices,
                    size_bytes=gradient_bytes(case),
                    compute_s=compute.total_s,
                )
            )
        return Estimate(
            strategy=self.name,
            axes=exchange.axes,
            compute_s=compute.total_s,
            parts=parts,
            waiting_s=waiting_s(case),
            memory_bytes=memory_by_kind(
                case,
                batch,
                is_exchanged=split.has_whole_weights,
                **memory_shares(split, devices),
            ),
            max_devices=np.full_like(devices, split.max_devices(case.work)),
            limit=traits.limit,
            losses=losses,
            refusals=[] if exchange.fits is None else [(~exchange.fits, traits.no_fit)],
        )

    def layered_step(self, case: StrategyCase) -> LayeredStep:
        split = self.split
        step = split_step(
            split,
            case,
            case.devices,
            float(case.batch[0]),
            redundancy=split.traits.redundancy,
            is_exchanged=split.has_whole_weights,
        )
        if split.has_whole_weights:
            step.gradients.update(
                gradient_messages(case, case.devices, gradient_link(case), messages=1)
            )
        return step
