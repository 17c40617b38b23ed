"""All devices work on the same samples: filter, channel and spatial parallelism."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from augury.oracle.strategies.exchange import gradient_exchange
from augury.oracle.strategies.split import Split, memory_shares, split_compute
from augury.oracle.strategy import Estimate, LimitReason, StrategyCase, gradient_bytes, waiting_s
from augury.oracle.strategy_memory import memory_by_kind


@dataclass(frozen=True)
class Alone:
    split: Split
    name: str

    def evaluate(self, case: StrategyCase) -> Estimate:
        devices, batch, split = case.devices, case.batch, self.split
        figures = split.figures
        compute = split_compute(
            split, case, num=devices, samples=batch, redundancy=figures.redundancy
        )
        told = split.exchange(case, num=devices, samples=batch)
        parts, losses = told.parts, {LimitReason.REDUNDANCY: compute.lost_s}
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
            axes=told.axes,
            compute_s=compute.total_s,
            parts=parts,
            waiting_s=waiting_s(case),
            memory_bytes=memory_by_kind(
                case,
                batch,
                is_exchanged=split.has_whole_weights,
                **memory_shares(split, devices),
            ),
            max_devices=np.full_like(devices, split.most(case.work)),
            limit=figures.limit,
            losses=losses,
            refusals=[] if told.fits is None else [(~told.fits, figures.no_fit)],
        )
