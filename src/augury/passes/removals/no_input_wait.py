"""Pass for input that is ready when a step needs it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from augury.core.enums import OpKind
from augury.core.graph.graph import NONE, Graph
from augury.passes.compute_scale import with_scaled_work
from augury.passes.protocol import Changed, ErrorModel, Scene, changed

Mask = np.ndarray[tuple[int], np.dtype[np.bool_]]

NO_INPUT = "no operation loads data, and no time passes before forward"


@dataclass(frozen=True, slots=True)
class InputOfRanks:
    """The ranks whose input is ready; None means all."""

    ranks: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class NoInputWait:
    """Removes the time in which threads load data, and the time before forward that no recorded
    operation explains: a loader that the profiler does not know leaves such a gap."""

    name = "no-input-wait"
    plan_section = None
    advice = "Load data in other processes, ahead of the step that needs it."

    def applies(self, scene: Scene) -> list[str]:
        return [] if input_ops(scene.graph).any() else [NO_INPUT]

    def apply(self, scene: Scene, parameters: InputOfRanks | None = None) -> Changed:
        graph = scene.graph
        chosen = input_ops(graph)
        if parameters is not None and parameters.ranks is not None:
            chosen &= np.isin(graph.ops.rank, parameters.ranks)
        factor = np.where(chosen, 0.0, 1.0)
        graph = with_scaled_work(graph, factor, np.ones(len(graph.ranks)))
        return changed(scene, replace(scene, graph=graph))

    def error_model(self, _parameters: InputOfRanks | None = None) -> ErrorModel:
        return ErrorModel(0.01)


NO_INPUT_WAIT = NoInputWait()


def input_ops(graph: Graph) -> Mask:
    """Marks the operations that load data or pass unexplained before forward."""
    ops = graph.ops
    is_data: Mask = (ops.kind == OpKind.DATA) & (ops.work_ns > 0)
    return is_data | gaps_before_forward(graph)


def gaps_before_forward(graph: Graph) -> Mask:
    """Marks time without a recorded operation before the first forward of a rank's step. Steps
    whose forward was not recorded have none."""
    ops = graph.ops
    is_gap = np.isin(ops.kind, [OpKind.OTHER, OpKind.UNEXPLAINED]) & (ops.work_ns > 0)
    rows = np.flatnonzero(is_gap & (ops.step >= 0) & (ops.resource != NONE))
    forwards = np.flatnonzero((ops.kind == OpKind.FORWARD) & (ops.step >= 0))
    # Ids on a thread rise in its order.
    first: dict[tuple[int, int, int], int] = {}
    for op in forwards.tolist():
        first.setdefault((int(ops.rank[op]), int(ops.step[op]), int(ops.resource[op])), op)
    found: Mask = np.zeros(graph.num_ops, dtype=bool)
    for op in rows.tolist():
        place = int(ops.rank[op]), int(ops.step[op]), int(ops.resource[op])
        found[op] = op < first.get(place, -1)
    return found
