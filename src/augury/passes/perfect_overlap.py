"""Pass for perfect overlap, where no compute waits for communication."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace

import numpy as np

from augury.core.columns import I4
from augury.core.enums import OpKind, are_communication
from augury.core.graph.graph import NONE, Edges, Graph
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
    pairs = np.stack([src[keep], dst[keep]])
    if np.all(src < dst):
        pairs = np.unique(np.concatenate([pairs, _order_of_starts(graph)], axis=1), axis=1)
    return graph.evolve(
        edges=Edges.from_pairs(pairs[0], pairs[1], num_ops=graph.num_ops),
        carries=type(carries)(src=carries.src[stays], dst=carries.dst[stays]),
        gradients=graph.gradients.empty() if np.any(~keep) else graph.gradients,
    )


def _order_of_starts(graph: Graph) -> I4:
    """Returns edges, as rows of sources and targets, that make all ranks start the collectives of a
    step on one stream in the same order: none is ready before a delayed earlier one. Before the
    change, compute that waited for communication ensured that order."""
    ops = graph.ops
    src, dst = graph.edges.sources(), graph.edges.dst
    is_member = are_communication(ops.kind) & (ops.gang != NONE) & (ops.resource != NONE)
    is_late = (ops.kind[src] == OpKind.DELAY) & is_member[dst]
    delays_of: dict[int, list[int]] = defaultdict(list)
    for delay, member in zip(src[is_late].tolist(), dst[is_late].tolist(), strict=True):
        delays_of[member].append(delay)
    earlier: dict[tuple[int, int], list[int]] = defaultdict(list)
    edges: list[tuple[int, int]] = []
    for member in np.flatnonzero(is_member).tolist():
        place = int(ops.resource[member]), int(ops.step[member])
        edges += [(delay, member) for delay in earlier[place] if delay < member]
        earlier[place] += delays_of[member]
    return np.array(edges, dtype=np.int32).reshape(-1, 2).T


PERFECT_OVERLAP = PerfectOverlap()
