"""Forward and backward in a graph: phase, layer and pass through the model of each operation."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from augury.core.columns import I4, U1
from augury.core.enums import OpKind
from augury.core.graph.graph import NONE, Edges, Graph
from augury.core.vocabulary.torch import ACCUMULATES_GRADIENT, FORWARD_RANGE

Mask = np.ndarray[tuple[int], np.dtype[np.bool_]]
FORWARD, BACKWARD = 1, 2


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StepStructure:
    """Columns beside those of Ops. They do not depend on durations."""

    phase: U1
    """FORWARD or BACKWARD; 0 for other operations. An unexplained gap belongs to the operation
    before it."""
    layer: I4
    """Number of the layer's name; NONE if it is unknown."""
    pass_of: I4
    """Number of the pass through the model, of a rank's step, that an operation belongs to; NONE
    outside of forward and backward. A step with micro-batches has several."""
    adds_gradients: Mask
    """Marks operations of backward that add a gradient to its parameter. Their time depends on
    parameters alone, however backward is computed."""
    edges: Edges
    """Those of the graph that this is the structure of."""

    @property
    def num_passes(self) -> int:
        return int(self.pass_of.max(initial=NONE)) + 1


def step_structure(graph: Graph, known: StepStructure | None = None) -> StepStructure:
    """Returns the structure of a graph; ``known``, if it is that of a graph with other durations
    only."""
    if known is not None and known.edges is graph.edges:
        return known
    phase = _phases(graph)
    adding = [number for number, name in enumerate(graph.strings) if name == ACCUMULATES_GRADIENT]
    return StepStructure(
        phase=phase,
        layer=_layers(graph, phase),
        pass_of=_passes(graph, phase),
        adds_gradients=np.isin(graph.ops.name, adding) & (graph.ops.kind == OpKind.BACKWARD),
        edges=graph.edges,
    )


def runs(*keys: I4) -> list[tuple[int, int]]:
    """Returns the bounds of the runs of equal keys."""
    if not len(keys[0]):
        return []
    differs = np.zeros(len(keys[0]), dtype=bool)
    differs[0] = True
    for key in keys:
        differs[1:] |= key[1:] != key[:-1]
    return list(pairwise([*np.flatnonzero(differs).tolist(), len(keys[0])]))


def _phases(graph: Graph) -> U1:
    ops = graph.ops
    phase = np.zeros(graph.num_ops, dtype=np.uint8)
    phase[ops.kind == OpKind.FORWARD] = FORWARD
    phase[(ops.kind == OpKind.BACKWARD) | (ops.kind == OpKind.RECOMPUTE)] = BACKWARD
    gaps = _gaps(graph)
    phase[gaps] = phase[gaps - 1]
    return phase


def _gaps(graph: Graph) -> I4:
    """Returns the unexplained gaps that directly follow another operation of their rank's step."""
    ops = graph.ops
    rows = np.flatnonzero(ops.kind == OpKind.UNEXPLAINED)
    rows = rows[rows > 0]
    is_next = (ops.rank[rows] == ops.rank[rows - 1]) & (ops.step[rows] == ops.step[rows - 1])
    return np.asarray(rows[is_next], dtype=np.int32)


def _layers(graph: Graph, phase: U1) -> I4:
    """Returns layers; the recorder's range around an outermost module has that of the module, if
    the graph knows it."""
    layer = graph.ops.layer.copy()
    number_of = {name: number for number, name in enumerate(graph.strings)}
    for name, number in number_of.items():
        if name.startswith(FORWARD_RANGE):
            own = (graph.ops.name == number) & (layer == NONE)
            layer[own] = number_of.get(name.removeprefix(FORWARD_RANGE), NONE)
    gaps = _gaps(graph)
    gaps = gaps[phase[gaps] > 0]
    layer[gaps] = layer[gaps - 1]
    return layer


def _passes(graph: Graph, phase: U1) -> I4:
    """A pass begins where forward follows a backward."""
    ops = graph.ops
    number = np.full(graph.num_ops, NONE, dtype=np.int32)
    rows = np.flatnonzero(phase > 0)
    rows = rows[np.lexsort((rows, ops.step[rows], ops.rank[rows]))]
    if not len(rows):
        return number
    begins = np.ones(len(rows), dtype=bool)
    begins[1:] = (
        (ops.rank[rows[1:]] != ops.rank[rows[:-1]])
        | (ops.step[rows[1:]] != ops.step[rows[:-1]])
        | ((phase[rows[1:]] == FORWARD) & (phase[rows[:-1]] == BACKWARD))
    )
    number[rows] = np.cumsum(begins) - 1
    return number
