"""ZeRO (FSDP): data parallelism that shards optimizer state (1), gradients (2), parameters (3)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from augury.core.columns import F8
from augury.core.enums import OpKind
from augury.costs.closed_forms import all_gather_s, reduce_scatter_s
from augury.oracle.graphs.layered import LayeredStep
from augury.oracle.graphs.messages import link_name, weight_messages
from augury.oracle.graphs.strategy_graph import LayeredStrategy
from augury.oracle.layer_costs import WEIGHT_BYTES
from augury.oracle.strategies.data import Data, data_parallel_factor, data_parallel_shares
from augury.oracle.strategies.exchange import gradient_link
from augury.oracle.strategy import (
    CostPart,
    Estimate,
    LimitReason,
    StrategyCase,
    exposed_behind,
    exposed_behind_backward,
    gradient_bytes,
)


@dataclass(frozen=True)
class Zero(LayeredStrategy):
    stage: int

    @property
    def name(self) -> str:
        return f"zero{self.stage}"

    @property
    def shards_parameters(self) -> bool:
        return self.stage == 3

    def evaluate(self, case: StrategyCase) -> Estimate:
        whole = Data().evaluate(case)
        devices, work = case.devices, case.work
        saved_s = work.total_update_s * (1 - 1 / devices)
        compute_s = whole.compute_s - saved_s
        return replace(
            whole,
            strategy=self.name,
            axes={"data": devices},
            compute_s=compute_s,
            parts=self._parts(case, compute_s),
            memory_bytes=self._memory(case, whole),
            losses={},
        )

    def layered_step(self, case: StrategyCase) -> LayeredStep:
        alpha, beta = gradient_link(case)
        messages = case.work.num_weighted if self.shards_parameters else 1
        link = link_name(case, case.level)
        scattered = weight_messages(
            case,
            reduce_scatter_s,
            name="gradients",
            kind=OpKind.REDUCE_SCATTER,
            num=case.devices,
            link=link,
            alpha=alpha,
            beta=beta,
            messages=messages,
        )
        gathered = weight_messages(
            case,
            all_gather_s,
            name="parameters",
            kind=OpKind.ALL_GATHER,
            num=case.devices,
            link=link,
            alpha=alpha,
            beta=beta,
            messages=messages,
        )
        return LayeredStep(
            case=case,
            compute_factor=data_parallel_factor(case),
            shares=data_parallel_shares(case, zero_stage=self.stage),
            update_share=1 / float(case.devices[0]),
            gradients={layer: [message] for layer, message in scattered.items()},
            parameters=gathered if self.shards_parameters else {},
            after_update={} if self.shards_parameters else gathered,
        )

    def _parts(self, case: StrategyCase, compute_s: F8) -> list[CostPart]:
        """Reduce-scatter of gradients and all-gather of parameters: once after the update, or,
        with sharded parameters, layer by layer in forward and again in backward."""
        devices, level = case.devices, case.level
        alpha, beta = gradient_link(case)
        size_bytes = gradient_bytes(case)
        messages = case.work.num_weighted if self.shards_parameters else 1
        num_gathers = 2 if self.shards_parameters else 1
        scatter_s = reduce_scatter_s(devices, size_bytes, alpha, beta, messages=messages)
        gather_s = num_gathers * all_gather_s(devices, size_bytes, alpha, beta, messages=messages)
        scatter_exposed_s = exposed_behind_backward(case, scatter_s, compute_s)
        gather_exposed_s = gather_s
        if self.shards_parameters and case.options.overlap:
            scatter_exposed_s, gather_exposed_s = _exposed(case, scatter_s, gather_s, compute_s)
        return [
            CostPart(
                reason=reason,
                collective=collective,
                size_bytes=np.full_like(devices, number * size_bytes),
                group=devices,
                level=level,
                time_s=time_s,
                exposed_s=exposed_s,
            )
            for reason, collective, number, time_s, exposed_s in (
                (LimitReason.GRADIENT, "reduce-scatter", 1, scatter_s, scatter_exposed_s),
                (LimitReason.GATHER, "all-gather", num_gathers, gather_s, gather_exposed_s),
            )
        ]

    def _memory(self, case: StrategyCase, whole: Estimate) -> dict[str, F8]:
        sharded = ("optimizer", "gradients", "parameters")[: self.stage]
        memory = {
            kind: held / case.devices if kind in sharded else held
            for kind, held in whole.memory_bytes.items()
        }
        if self.shards_parameters:
            # Two layers are gathered at a time: the one that runs, and the next.
            largest = 2 * WEIGHT_BYTES * float(np.sort(case.work.parameters)[-2:].mean())
            gathered = np.where(case.devices > 1, largest, 0.0)
            memory["transient"] = memory.get("transient", 0.0) + gathered
        return memory


def _exposed(case: StrategyCase, scatter_s: F8, gather_s: F8, compute_s: F8) -> tuple[F8, F8]:
    """Exposed time of the reduce-scatter and the all-gather, layer by layer: half of the gathering
    overlaps with forward, the other half and the gradients share backward."""
    work, half_s = case.work, gather_s / 2
    first_s = exposed_behind(case, half_s, compute_s * (work.total_forward_s / work.sample_s))
    both_s = half_s + scatter_s
    rest_s = exposed_behind_backward(case, both_s, compute_s)
    share = np.divide(scatter_s, both_s, out=np.zeros_like(both_s), where=both_s > 0)
    return rest_s * share, first_s + rest_s * (1 - share)
