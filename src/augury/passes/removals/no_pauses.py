"""Pass for operations that take no longer than in other steps."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from augury.core.columns import I8
from augury.core.enums import OpKind, are_communication
from augury.core.graph.graph import Graph
from augury.passes.protocol import Changed, ErrorModel, Scene, changed

LONG = 3.0
"""Operations that take this many times their median are paused."""
LONG_SHARE = 0.05
"""Smallest pause, as a share of a rank's work in a step."""

_OF_BATCH = (OpKind.FORWARD, OpKind.BACKWARD)


@dataclass(frozen=True, slots=True)
class NoPauses:
    """Shortens compute that takes several times as long as the same operation in other steps to its
    median there."""

    name = "no-pauses"
    plan_section = None
    advice = "Find what interrupts the process: garbage collection, checkpoints, other load."

    def applies(self, scene: Scene) -> list[str]:
        few = scene.graph.num_steps < 3
        return ["the run has less than three recorded steps to compare"] if few else []

    def apply(self, scene: Scene, _parameters: None = None) -> Changed:
        graph = scene.graph
        work_ns = graph.ops.work_ns - pauses_ns(graph)
        return changed(scene, replace(scene, graph=graph.with_work_ns(work_ns)))

    def error_model(self, _parameters: None = None) -> ErrorModel:
        return ErrorModel(0.01)


NO_PAUSES = NoPauses()


def pauses_ns(graph: Graph) -> I8:
    """Returns by how much each operation exceeds its median over the steps; 0 for most. Operations
    are compared by rank, name, layer and position among those of the same name in the step."""
    ops = graph.ops
    found = np.zeros(graph.num_ops, dtype=np.int64)
    rows = np.flatnonzero(~are_communication(ops.kind) & (ops.step >= 0) & (ops.gang < 0))
    if graph.num_steps < 3 or not len(rows):
        return found
    which = _groups(ops.rank[rows], ops.kind[rows], ops.name[rows], ops.layer[rows])
    # The position among operations of the same name in the step.
    order = np.lexsort((rows, ops.step[rows], which))
    key = np.stack([which[order], ops.step[rows][order]])
    begins = np.flatnonzero(np.append(True, np.any(np.diff(key, axis=1), axis=0)))
    position = np.arange(len(order)) - np.repeat(begins, np.diff(np.append(begins, len(order))))
    peers = _groups(which[order], position)
    by_peers = np.lexsort((ops.work_ns[rows][order], peers))
    counts = np.bincount(peers)
    last = np.cumsum(counts)
    sorted_work = ops.work_ns[rows][order][by_peers]
    median = sorted_work[last - counts + counts // 2]
    least = np.where(counts >= 3, median, np.iinfo(np.int64).max // 8)[peers]
    per_step = np.bincount(ops.rank[rows], weights=ops.work_ns[rows]) / graph.num_steps
    own = ops.work_ns[rows][order]
    least = np.rint(least * _batch_scale(graph)[rows[order]]).astype(np.int64)
    excess = own - least
    smallest = LONG_SHARE * per_step[ops.rank[rows][order]]
    is_long = (own > LONG * least) & (excess > smallest)
    found[rows[order]] = np.where(is_long, excess, 0)
    return found


def _batch_scale(graph: Graph) -> NDArray[np.float64]:
    """Returns by how much the batch of each operation of forward and backward is larger than the
    rank's median batch; 1 for other operations. A larger batch lengthens both forward and backward,
    a pause only one of them."""
    ops = graph.ops
    scale = np.ones(graph.num_ops)
    steps, column = np.unique(ops.step, return_inverse=True)
    factors = np.full((len(graph.ranks), len(steps)), np.inf)
    for kind in _OF_BATCH:
        rows = np.flatnonzero((ops.kind == kind) & (ops.step >= 0))
        total = np.zeros_like(factors)
        np.add.at(total, (ops.rank[rows], column[rows]), ops.work_ns[rows])
        median = np.median(total[:, steps >= 0], axis=1, keepdims=True)
        factors = np.minimum(factors, total / np.maximum(1.0, median))
    of_batch = np.flatnonzero(np.isin(ops.kind, _OF_BATCH) & (ops.step >= 0))
    scale[of_batch] = np.maximum(1.0, factors[ops.rank[of_batch], column[of_batch]])
    return scale


def _groups(*columns: NDArray[np.integer]) -> I8:
    """Numbers the distinct rows of columns; a sort of one column after the other is much faster
    than ``np.unique`` of rows."""
    group = np.zeros(len(columns[0]), dtype=np.int64)
    for values in columns:
        _, code = np.unique(values, return_inverse=True)
        _, group = np.unique(group * (int(code.max()) + 1) + code, return_inverse=True)
    return group
