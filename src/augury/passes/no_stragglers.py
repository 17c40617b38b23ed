"""Pass for compute of all ranks at the speed of the fastest one."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from augury.core.enums import Role, are_communication
from augury.core.graph.graph import Graph
from augury.passes.compute_scale import with_scaled_work
from augury.passes.protocol import Changed, ErrorModel, Scene, changed


@dataclass(frozen=True, slots=True)
class NoStragglers:
    """Scales compute so that each rank computes in each step for at most the median time of the
    fastest rank. Steps with less compute stay as they are: none becomes longer."""

    name = "no-stragglers"
    plan_section = None
    advice = "Find out why ranks differ: uneven batches, slower machines, or other load."

    def applies(self, _scene: Scene) -> list[str]:
        return []

    def apply(self, scene: Scene, _parameters: None = None) -> Changed:
        return changed(scene, replace(scene, graph=_balanced(scene.graph)))

    def error_model(self, _parameters: None = None) -> ErrorModel:
        return ErrorModel(0.01)


def _balanced(graph: Graph) -> Graph:
    if graph.num_ranks < 2:
        return graph  # no rank is slower than another one
    ops = graph.ops
    is_worker = graph.ranks.role == Role.WORKER
    compute = ~are_communication(ops.kind) & (ops.step >= 0) & is_worker[ops.rank]
    steps, step = np.unique(ops.step, return_inverse=True)
    total = np.zeros((len(graph.ranks), len(steps)))
    np.add.at(total, (ops.rank[compute], step[compute]), ops.work_ns[compute])
    typical = [np.median(row[row > 0]) for row in total if (row > 0).any()]
    fastest = min(typical, default=0.0)
    factor = np.ones(graph.num_ops)
    own = total[ops.rank, step]
    busy = compute & (own > 0)
    factor[busy] = np.minimum(1.0, fastest / own[busy])
    return with_scaled_work(graph, factor, np.ones(len(graph.ranks)))


NO_STRAGGLERS = NoStragglers()
