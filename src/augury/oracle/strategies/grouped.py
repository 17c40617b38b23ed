"""Hybrids: samples are split inside groups, the batch among groups; gradients of what a device has
of the weights are summed between groups."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from augury.core.columns import F8
from augury.costs.closed_forms import all_reduce_s
from augury.oracle.strategies.exchange import gradient_exchange
from augury.oracle.strategies.split import Split, memory_shares, split_compute
from augury.oracle.strategy import (
    CostPart,
    Estimate,
    LimitReason,
    Mask,
    StrategyCase,
    gradient_bytes,
    must_divide,
    waiting_s,
)
from augury.oracle.strategy_memory import memory_by_kind


@dataclass(frozen=True)
class Grouped:
    split: Split
    name: str

    def evaluate(self, case: StrategyCase) -> Estimate:
        devices, work, split = case.devices, case.work, self.split
        figures = split.figures
        group, groups = np.full_like(devices, case.group), between_groups(case)
        samples = case.batch / groups
        compute = split_compute(
            split, case, num=group, samples=samples, redundancy=figures.group_redundancy
        )
        told = split.exchange(case, num=group, samples=samples)
        compute_s = compute.total_s
        is_whole = split.has_whole_weights
        between = gradient_exchange(
            case,
            num=groups,
            size_bytes=gradient_bytes(case) / (1 if is_whole else case.group),
            compute_s=compute_s,
            messages=group_messages(split, case),
            flows=1 if is_whole else case.group,
        )
        refusals = self._refusals(case, group, groups)
        if told.fits is not None:
            refusals.append((~told.fits, figures.no_fit))
        return Estimate(
            strategy=self.name,
            axes={"data": groups, **told.axes},
            compute_s=compute_s,
            parts=[*told.parts, *([_inside(case, group)] if is_whole else []), between],
            waiting_s=waiting_s(case),
            memory_bytes=memory_by_kind(
                case, samples, is_exchanged=True, **memory_shares(split, group)
            ),
            max_devices=case.batch * min(case.group, split.most(work)),
            limit=f"one sample a group, and {figures.limit} in a group",
            losses={
                LimitReason.REDUNDANCY: compute.lost_s,
                LimitReason.UPDATE: compute.update_s * (1 - 1 / (devices if is_whole else groups)),
            },
            refusals=refusals,
        )

    def _refusals(self, case: StrategyCase, group: F8, groups: F8) -> list[tuple[Mask, str]]:
        size, limit = case.group, self.split.most(case.work)
        return [
            must_divide(case.devices, group, f"the devices do not divide into groups of {size}"),
            (
                group > limit,
                f"a group of {size} is more than the {limit} {self.split.figures.counted}",
            ),
            must_divide(case.batch, groups, f"the batch does not divide by the groups of {size}"),
        ]


def between_groups(case: StrategyCase) -> F8:
    """How many groups there are, at least one."""
    return np.maximum(1.0, np.floor(case.devices / case.group))


def group_messages(split: Split, case: StrategyCase) -> float:
    """Of the exchange between groups."""
    share: float = getattr(case.constants, split.figures.group_messages)
    return 1 + share * (case.work.num_weighted - 1)


def _inside(case: StrategyCase, group: F8) -> CostPart:
    """Where all of a group hold the same weights: summed there first."""
    cluster = case.cluster
    level = cluster.level_of(group)
    size_bytes = gradient_bytes(case)
    time_s = all_reduce_s(
        group, size_bytes, cluster.latency_s(level), cluster.seconds_per_byte(level)
    )
    return CostPart(
        reason=LimitReason.GRADIENT,
        collective="all-reduce",
        size_bytes=np.full_like(group, size_bytes),
        group=group,
        level=level,
        time_s=time_s,
        exposed_s=time_s,
    )
