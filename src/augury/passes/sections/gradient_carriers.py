"""The communication that carries gradients, with the operations before and after it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from augury.core.columns import I4
from augury.core.enums import OpKind
from augury.core.graph.graph import NONE, Graph

LEAST_BYTES = 1 << 16
"""Smaller all-reduces carry metrics and flags, where the graph does not name the gradients."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientCarrier:
    """One rank's part in an exchange of gradients."""

    op: int
    rank: int
    size_bytes: int
    made_by: int
    """The last operation before it; NONE if none is known."""
    used_by: int
    """The first operation that needs its result; NONE if none is known."""


def gradient_carriers(graph: Graph) -> list[GradientCarrier]:
    """Returns the operations that carry gradients: those that the graph names, or else all large
    all-reduces."""
    gradients, ops = graph.gradients, graph.ops
    if not len(gradients):
        rows = np.flatnonzero((ops.kind == OpKind.ALL_REDUCE) & (ops.size_bytes >= LEAST_BYTES))
        return [
            _carrier(
                graph,
                op,
                made_by=max(_beside(graph, op, graph.predecessors.of(op)), default=NONE),
                used_by=min(_beside(graph, op, graph.edges.of(op)), default=NONE),
            )
            for op in rows.tolist()
        ]
    carried = gradients.carried_by
    rows = np.flatnonzero(carried != NONE)
    made: dict[int, int] = {}
    used: dict[int, int] = {}
    for row in rows.tolist():
        op = int(carried[row])
        made_by, used_by = int(gradients.made_by[row]), int(gradients.used_by[row])
        made[op] = max(made.get(op, NONE), made_by)
        if used_by != NONE:
            used[op] = min(used.get(op, used_by), used_by)
    return [
        _carrier(graph, op, made_by=made[op], used_by=used.get(op, NONE)) for op in sorted(made)
    ]


def _carrier(graph: Graph, op: int, *, made_by: int, used_by: int) -> GradientCarrier:
    return GradientCarrier(
        op=op,
        rank=int(graph.ops.rank[op]),
        size_bytes=int(graph.ops.size_bytes[op]),
        made_by=made_by,
        used_by=used_by,
    )


def _beside(graph: Graph, op: int, rows: I4) -> list[int]:
    """Returns the operations of the same rank that occupy a resource and so can take longer."""
    ops = graph.ops
    found: list[int] = rows[
        (ops.resource[rows] != NONE) & (ops.rank[rows] == ops.rank[op])
    ].tolist()
    return found
