"""Pass for perfect overlap, where no compute waits for communication."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from augury.core.enums import are_communication
from augury.core.graph.graph import Edges, Graph
from augury.passes.protocol import Changed, ErrorModel, Scene, changed


@dataclass(frozen=True, slots=True)
class PerfectOverlap:
    """Removes all edges from communication to compute. Communication still takes its time, so that
    a step lasts as long as the longer of the two."""

    name = "perfect-overlap"
    plan_section = None
    advice = "An upper bound on the gain from scheduling communication: augury schedule."

    def applies(self, _scene: Scene) -> list[str]:
        return []

    def apply(self, scene: Scene, _parameters: None = None) -> Changed:
        return changed(scene, replace(scene, graph=_without_waits(scene.graph)))

    def error_model(self, _parameters: None = None) -> ErrorModel:
        return ErrorModel(0.01)


def _without_waits(graph: Graph) -> Graph:
    is_communication = are_communication(graph.ops.kind)
    src, dst = graph.edges.sources(), graph.edges.dst
    keep = ~(is_communication[src] & ~is_communication[dst])
    carries = graph.carries
    stays = ~(is_communication[carries.src] & ~is_communication[carries.dst])
    return graph.evolve(
        edges=Edges.from_pairs(src[keep], dst[keep], num_ops=graph.num_ops),
        carries=type(carries)(src=carries.src[stays], dst=carries.dst[stays]),
        gradients=graph.gradients.empty() if np.any(~keep) else graph.gradients,
    )


PERFECT_OVERLAP = PerfectOverlap()
