"""Pass for forward and backward that are spread evenly over the ranks."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from augury.core.enums import OpKind
from augury.core.graph.graph import Graph
from augury.passes.compute_scale import with_scaled_work
from augury.passes.protocol import Changed, ErrorModel, Scene, changed

_SPREAD = (OpKind.FORWARD, OpKind.BACKWARD, OpKind.RECOMPUTE)


@dataclass(frozen=True, slots=True)
class BalancedRanks:
    """Scales forward and backward of each rank in each step to the mean over the ranks. All ranks
    together do the same work as before: stages with other cuts, or batches of equal length."""

    name = "balanced-ranks"
    plan_section = None
    advice = "Cut the stages of the pipeline evenly, or give all ranks batches of equal length."

    def applies(self, scene: Scene) -> list[str]:
        return [] if scene.graph.num_ranks > 1 else ["there is one rank"]

    def apply(self, scene: Scene, _parameters: None = None) -> Changed:
        return changed(scene, replace(scene, graph=_balanced(scene.graph)))

    def error_model(self, _parameters: None = None) -> ErrorModel:
        return ErrorModel(0.02)


BALANCED_RANKS = BalancedRanks()


def _balanced(graph: Graph) -> Graph:
    ops = graph.ops
    factor = np.ones(graph.num_ops)
    _, place = np.unique(ops.step, return_inverse=True)
    for kind in _SPREAD:
        rows = np.flatnonzero((ops.kind == kind) & (ops.step >= 0))
        if not len(rows):
            continue
        total = np.zeros((graph.num_ranks, int(place.max()) + 1))
        np.add.at(total, (ops.rank[rows], place[rows]), ops.work_ns[rows])
        mean = total.mean(axis=0)
        own = total[ops.rank[rows], place[rows]]
        factor[rows] = np.where(own > 0, mean[place[rows]] / np.maximum(own, 1.0), 1.0)
    return with_scaled_work(graph, factor, np.ones(len(graph.ranks)))
