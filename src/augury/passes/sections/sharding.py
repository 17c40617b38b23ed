"""Pass for optimizer state, gradients and parameters that are divided among ranks (ZeRO)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from augury.core.enums import MemoryKind, OpKind
from augury.core.graph.graph import NONE
from augury.core.plan.plan import PlanSection
from augury.core.plan.sections import ShardingSection
from augury.passes.protocol import Changed, ErrorModel, Scene
from augury.passes.sections.gradient_carriers import gradient_carriers
from augury.passes.sections.held_memory import of_kind, with_sizes
from augury.passes.sections.module_work import ModuleWork
from augury.passes.sections.section_pass import check_section, with_section

_DIVIDED = {
    MemoryKind.OPTIMIZER: 1,
    MemoryKind.GRADIENT: 2,
    MemoryKind.PARAMETER: 3,
}
"""The first stage that divides each kind of memory."""
_ERRORS = {1: 0.06, 2: 0.1, 3: 0.15}


@dataclass(frozen=True, slots=True)
class ShardMemory:
    """Divides memory among the ranks. Each rank updates its part of the parameters, which all then
    gather: half of an all-reduce. From stage 2 on gradients are only reduced to their owners, the
    other half. Stage 3 gathers parameters before forward and before backward instead."""

    name = "sharding"
    plan_section = PlanSection.SHARDING.value
    advice = """\
stage 1: optimizer = torch.distributed.optim.ZeroRedundancyOptimizer(
    model.parameters(), optimizer_class=OPTIMIZER, **OPTIONS)
stage 2: for block in BLOCKS:
    torch.distributed.fsdp.fully_shard(block, reshard_after_forward=False)
torch.distributed.fsdp.fully_shard(model, reshard_after_forward=False)
stage 3: for block in BLOCKS:
    torch.distributed.fsdp.fully_shard(block)
torch.distributed.fsdp.fully_shard(model)"""

    def applies(self, scene: Scene) -> list[str]:
        graph = scene.graph
        reasons = []
        if graph.num_ranks < 2:
            reasons.append("one rank has no others to share with")
        elif not gradient_carriers(graph):
            reasons.append(
                "the run exchanges no gradients by all-reduce; it may be sharded already"
            )
        if not of_kind(scene, MemoryKind.OPTIMIZER, MemoryKind.PARAMETER).any():
            reasons.append("the run has no record of parameters and optimizer state")
        if scene.is_expanded:
            reasons.append("collectives are expanded into messages")
        return reasons

    def apply(self, scene: Scene, section: ShardingSection) -> Changed:
        check_section(self, scene, section)
        graph, work = scene.graph, ModuleWork(scene)
        num_ranks, ops = graph.num_ranks, scene.graph.ops
        carriers = np.array([one.op for one in gradient_carriers(graph)], dtype=np.int32)
        exchange_ns = np.bincount(
            ops.rank[carriers], weights=ops.work_ns[carriers], minlength=len(graph.ranks)
        ) / max(1, graph.num_steps)
        updates = np.flatnonzero((ops.kind == OpKind.UPDATE) & (ops.resource != NONE))
        last = _last_of_steps(scene, updates)
        work.work_ns[last] /= num_ranks
        half_ns = exchange_ns / 2
        if section.stage >= 2:
            work.work_ns[carriers] /= 2
        if section.stage < 3:
            work.work_ns[last] += half_ns[ops.rank[last]]
        else:
            for rows in (work.forward, work.backward):
                begins = np.flatnonzero(rows & (ops.resource != NONE))
                _, first = np.unique(work.structure.pass_of[begins], return_index=True)
                work.work_ns[begins[first]] += half_ns[ops.rank[begins[first]]]
        factors = np.ones(len(graph.buffers))
        for kind, stage in _DIVIDED.items():
            if section.stage >= stage:
                factors[of_kind(scene, kind)] = 1 / num_ranks
        new = with_sizes(work.scene(), factors) if (factors != 1).any() else work.scene()
        return with_section(scene, new, PlanSection.SHARDING, section)

    def error_model(self, section: ShardingSection) -> ErrorModel:
        return ErrorModel(_ERRORS.get(section.stage, max(_ERRORS.values())))

    def error_in(self, _scene: Scene, section: ShardingSection) -> ErrorModel:
        return self.error_model(section)


SHARDING = ShardMemory()


def _last_of_steps(scene: Scene, rows: np.ndarray) -> np.ndarray:
    """Returns the last of these operations in each step of each rank: the update itself, after the
    gradients of the step before were cleared."""
    ops = scene.graph.ops
    place = {(int(ops.rank[row]), int(ops.step[row])): row for row in rows.tolist()}
    return np.array(sorted(place.values()), dtype=np.int32)
