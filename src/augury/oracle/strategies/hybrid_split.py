"""Hybrid parallelism: groups of devices split samples, and groups split the batch.

Gradients of the weights that a device holds are summed between groups.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from augury.core.columns import F8
from augury.costs.closed_forms import all_reduce_s
from augury.oracle.graphs.layered import LayeredStep
from augury.oracle.graphs.messages import gradient_messages
from augury.oracle.graphs.program import Participants
from augury.oracle.graphs.strategy_graph import LayeredStrategy
from augury.oracle.strategies.exchange import gradient_exchange, gradient_link
from augury.oracle.strategies.split import Split, memory_shares, split_compute, split_step
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
class HybridSplit(LayeredStrategy):
    split: Split
    name: str

    def devices_per_group(self, case: StrategyCase) -> int:
        return case.group

    def evaluate(self, case: StrategyCase) -> Estimate:
        devices, work, split = case.devices, case.work, self.split
        traits = split.traits
        group, num_groups = np.full_like(devices, case.group), _num_groups(case)
        samples = case.batch / num_groups
        compute = split_compute(
            split, case, num=group, samples=samples, redundancy=traits.group_redundancy
        )
        exchange = split.exchange(case, num=group, samples=samples)
        compute_s = compute.total_s
        is_whole = split.has_whole_weights
        between = gradient_exchange(
            case,
            num=num_groups,
            size_bytes=gradient_bytes(case) / (1 if is_whole else case.group),
            compute_s=compute_s,
            messages=_num_messages(split, case),
            flows=1 if is_whole else case.group,
        )
        refusals = self._refusals(case, group, num_groups)
        if exchange.fits is not None:
            refusals.append((~exchange.fits, traits.no_fit))
        inside = [_exchange_inside(case, group)] if is_whole else []
        replicas = devices if is_whole else num_groups
        return Estimate(
            strategy=self.name,
            axes={"data": num_groups, **exchange.axes},
            compute_s=compute_s,
            parts=[*exchange.parts, *inside, between],
            waiting_s=waiting_s(case),
            memory_bytes=memory_by_kind(
                case, samples, is_exchanged=True, **memory_shares(split, group)
            ),
            max_devices=case.batch * min(case.group, split.max_devices(work)),
            limit=f"one sample per group, and {traits.limit} in a group",
            losses={
                LimitReason.REDUNDANCY: compute.lost_s,
                LimitReason.UPDATE: compute.update_s * (1 - 1 / replicas),
            },
            refusals=refusals,
        )

    def layered_step(self, case: StrategyCase) -> LayeredStep:
        split = self.split
        group, num_groups = np.array([float(case.group)]), _num_groups(case)
        step = split_step(
            split,
            case,
            group,
            float(case.batch[0] / num_groups[0]),
            redundancy=split.traits.group_redundancy,
            is_exchanged=True,
        )
        messages = _num_messages(split, case)
        if not split.has_whole_weights:
            step.gradients.update(
                gradient_messages(
                    case,
                    num_groups,
                    gradient_link(case, flows=case.group),
                    messages=messages,
                    weights=1 / case.group,
                    participants=Participants.ACROSS,
                )
            )
            return step
        level = case.cluster.level_of(group)
        inside = gradient_messages(
            case,
            group,
            (case.cluster.latency_s(level), case.cluster.seconds_per_byte(level)),
            name="gradients in the group",
            level=level,
            messages=1,
            participants=Participants.GROUP,
        )
        between = gradient_messages(case, num_groups, gradient_link(case), messages=messages)
        for layer in sorted(inside.keys() | between.keys()):
            step.gradients[layer] = [*inside.get(layer, []), *between.get(layer, [])]
        return step

    def _refusals(self, case: StrategyCase, group: F8, num_groups: F8) -> list[tuple[Mask, str]]:
        size, limit = case.group, self.split.max_devices(case.work)
        return [
            must_divide(case.devices, group, f"the devices do not divide into groups of {size}"),
            (
                group > limit,
                f"a group of {size} is more than the {limit} {self.split.traits.counted}",
            ),
            must_divide(
                case.batch, num_groups, f"the batch does not divide by the groups of {size}"
            ),
        ]


def _num_groups(case: StrategyCase) -> F8:
    """Number of groups, at least one."""
    return np.maximum(1.0, np.floor(case.devices / case.group))


def _num_messages(split: Split, case: StrategyCase) -> float:
    """Number of messages of the exchange between groups."""
    share: float = getattr(case.constants, split.traits.group_messages)
    return 1 + share * (case.work.num_weighted - 1)


def _exchange_inside(case: StrategyCase, group: F8) -> CostPart:
    """All-reduce inside a group, first, where all of its devices hold the same weights."""
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
