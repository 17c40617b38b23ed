"""Pass for compute of all ranks at the speed of the fastest one."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from augury.core.enums import are_communication
from augury.core.graph.graph import Graph
from augury.passes.compute_scale import with_scaled_work
from augury.passes.protocol import Changed, ErrorModel, Scene, changed


@dataclass(frozen=True, slots=True)
class NoStragglers:
    """Scales compute so that each rank computes in each step for the median time of the fastest
    rank."""

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
    ops = graph.ops
    compute = ~are_communication(graph.ops.kind) & (ops.step >= 0)
    steps, step = np.unique(ops.step, return_inverse=True)
    total = np.zeros((len(graph.ranks), len(steps)))
    np.add.at(total, (ops.rank[compute], step[compute]), ops.work_ns[compute])
    typical = np.array([np.median(row[row > 0]) if (row > 0).any() else 0.0 for row in total])
    fastest = min(typical[typical > 0], default=0.0)
    factor = np.ones(graph.num_ops)
    own = total[ops.rank, step]
    busy = compute & (own > 0)
    factor[busy] = fastest / own[busy]
    return with_scaled_work(graph, factor, np.ones(len(graph.ranks)))


NO_STRAGGLERS = NoStragglers()
