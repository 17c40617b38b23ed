"""Pass for ranks that never wait for each other."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from augury.core.enums import OpKind, are_communication
from augury.core.graph.graph import NONE, Edges
from augury.passes.protocol import Changed, ErrorModel, Scene, changed


@dataclass(frozen=True, slots=True)
class IndependentRanks:
    """Removes all waits for communication, and its time: each rank only does its own work."""

    name = "independent-ranks"
    plan_section = None
    advice = "A bound: the step of the rank with the most work."

    def applies(self, _scene: Scene) -> list[str]:
        return []

    def apply(self, scene: Scene, _parameters: None = None) -> Changed:
        graph, ops = scene.graph, scene.graph.ops
        moves = are_communication(ops.kind) | ((ops.kind == OpKind.DELAY) & (ops.step >= 0))
        columns = dict(ops.columns()) | {
            "work_ns": np.where(moves, 0, ops.work_ns),
            "resource": np.where(moves, NONE, ops.resource),
            "gang": np.where(moves, NONE, ops.gang),
        }
        src, dst = graph.edges.sources(), graph.edges.dst
        # Operations after communication stay behind the rank's own work before it.
        keep = ops.rank[src] == ops.rank[dst]
        carries = graph.carries
        stays = ops.rank[carries.src] == ops.rank[carries.dst]
        graph = graph.evolve(
            ops=type(ops)(**columns),
            edges=Edges.from_pairs(src[keep], dst[keep], num_ops=graph.num_ops),
            carries=type(carries)(src=carries.src[stays], dst=carries.dst[stays]),
            gradients=graph.gradients.empty(),
        )
        return changed(scene, replace(scene, graph=graph))

    def error_model(self, _parameters: None = None) -> ErrorModel:
        return ErrorModel(0.02)


INDEPENDENT_RANKS = IndependentRanks()
