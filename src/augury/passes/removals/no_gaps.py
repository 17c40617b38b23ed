"""Pass for steps without time that no recorded operation explains."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from augury.core.enums import OpKind
from augury.core.graph.graph import Graph
from augury.passes.compute_scale import with_scaled_work
from augury.passes.protocol import Changed, ErrorModel, Scene, changed
from augury.passes.removals.no_input_wait import Mask, gaps_before_forward


@dataclass(frozen=True, slots=True)
class NoGaps:
    """Removes the time between recorded operations, apart from that before forward, which counts as
    input."""

    name = "no-gaps"
    plan_section = None
    advice = "Move work of the program out of the step, or into another thread."

    def applies(self, scene: Scene) -> list[str]:
        return [] if gaps(scene.graph).any() else ["recorded operations explain all of the steps"]

    def apply(self, scene: Scene, _parameters: None = None) -> Changed:
        graph = scene.graph
        factor = np.where(gaps(graph), 0.0, 1.0)
        graph = with_scaled_work(graph, factor, np.ones(len(graph.ranks)))
        return changed(scene, replace(scene, graph=graph))

    def error_model(self, _parameters: None = None) -> ErrorModel:
        return ErrorModel(0.01)


NO_GAPS = NoGaps()


def gaps(graph: Graph) -> Mask:
    """Marks time between recorded operations, after the first forward of a step has begun."""
    ops = graph.ops
    unknown = np.isin(ops.kind, [OpKind.OTHER, OpKind.UNEXPLAINED]) & (ops.work_ns > 0)
    return np.asarray(unknown & (ops.step >= 0) & ~gaps_before_forward(graph))
