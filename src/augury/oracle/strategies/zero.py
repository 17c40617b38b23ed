"""ZeRO (FSDP): data parallelism whose optimizer state (1), gradients (2) and parameters (3) are
shared out."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from augury.core.columns import F8
from augury.costs.closed_forms import all_gather_s, reduce_scatter_s
from augury.oracle.layer_costs import WEIGHT_BYTES
from augury.oracle.strategies.data import Data
from augury.oracle.strategies.exchange import gradient_link
from augury.oracle.strategy import (
    CostPart,
    Estimate,
    LimitReason,
    StrategyCase,
    gradient_bytes,
    hidden_behind,
    hidden_behind_backward,
)


@dataclass(frozen=True)
class Zero:
    stage: int

    @property
    def name(self) -> str:
        return f"zero{self.stage}"

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

    def _parts(self, case: StrategyCase, compute_s: F8) -> list[CostPart]:
        """Gradients are scattered, parameters gathered: once behind the update, or, where nobody
        keeps them, layer by layer in forward and again in backward."""
        devices, level = case.devices, case.level
        alpha, beta = gradient_link(case)
        size_bytes = gradient_bytes(case)
        messages = case.work.num_weighted if self.stage == 3 else 1
        times = 2 if self.stage == 3 else 1
        scatter_s = reduce_scatter_s(devices, size_bytes, alpha, beta, messages=messages)
        gather_s = times * all_gather_s(devices, size_bytes, alpha, beta, messages=messages)
        scatter_exposed_s = hidden_behind_backward(case, scatter_s, compute_s)
        gather_exposed_s = gather_s
        if self.stage == 3 and case.options.overlap:
            scatter_exposed_s, gather_exposed_s = _hidden(case, scatter_s, gather_s, compute_s)
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
                (LimitReason.GATHER, "all-gather", times, gather_s, gather_exposed_s),
            )
        ]

    def _memory(self, case: StrategyCase, whole: Estimate) -> dict[str, F8]:
        shared = ("optimizer", "gradients", "parameters")[: self.stage]
        memory = {
            kind: held / case.devices if kind in shared else held
            for kind, held in whole.memory_bytes.items()
        }
        if self.stage == 3:
            # Two layers are whole at a time: the one at work, and the next.
            largest = 2 * WEIGHT_BYTES * float(np.sort(case.work.parameters)[-2:].mean())
            gathered = np.where(case.devices > 1, largest, 0.0)
            memory["transient"] = memory.get("transient", 0.0) + gathered
        return memory


def _hidden(case: StrategyCase, scatter_s: F8, gather_s: F8, compute_s: F8) -> tuple[F8, F8]:
    """Layer by layer: half of what is gathered behind forward, the rest beside gradients behind
    backward."""
    work, half_s = case.work, gather_s / 2
    first_s = hidden_behind(case, half_s, compute_s * (work.total_forward_s / work.sample_s))
    both_s = half_s + scatter_s
    rest_s = hidden_behind_backward(case, both_s, compute_s)
    share = np.divide(scatter_s, both_s, out=np.zeros_like(both_s), where=both_s > 0)
    return rest_s * share, first_s + rest_s * (1 - share)
