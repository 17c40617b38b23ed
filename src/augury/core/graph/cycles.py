"""Topological order of operations, and cycles among them."""

from __future__ import annotations

import numpy as np

from augury.core.columns import I4
from augury.core.graph.graph import Edges


def find_cycle(edges: Edges) -> list[int]:
    """Returns the operations of one cycle in order, or an empty list. Most graphs have edges to
    larger ids only, which rules cycles out; only other graphs are searched."""
    if (edges.sources() < edges.dst).all():
        return []
    try:
        from augury._native import unsorted_remainder  # noqa: PLC0415
    except ImportError:
        left = _unsorted_remainder(edges)
    else:
        left = unsorted_remainder(edges.first, edges.dst)
    return _walk(edges, left) if len(left) else []


def data_order(edges: Edges) -> I4:
    """Returns all operations, each after its predecessors, without those on or behind a cycle."""
    num_ops = len(edges.first) - 1
    if (edges.sources() < edges.dst).all():
        return np.arange(num_ops, dtype=np.int32)
    missing = np.bincount(edges.dst, minlength=num_ops).tolist()
    first, dst = edges.first.tolist(), edges.dst.tolist()
    order = [op for op in range(num_ops) if missing[op] == 0]
    for op in order:
        for successor in dst[first[op] : first[op + 1]]:
            missing[successor] -= 1
            if missing[successor] == 0:
                order.append(successor)
    return np.array(order, dtype=np.int32)


def _unsorted_remainder(edges: Edges) -> I4:
    """Returns the operations that no topological order contains."""
    is_left = np.ones(len(edges.first) - 1, dtype=bool)
    is_left[data_order(edges)] = False
    return np.flatnonzero(is_left).astype(np.int32)


def _walk(edges: Edges, left: I4) -> list[int]:
    """Follows predecessors within ``left``, in which each has one, until an operation recurs."""
    inside = np.zeros(len(edges.first) - 1, dtype=bool)
    inside[left] = True
    src = edges.sources()
    kept = inside[src] & inside[edges.dst]
    waits_for = dict(zip(edges.dst[kept].tolist(), src[kept].tolist(), strict=True))
    seen: dict[int, int] = {}
    op = int(left[0])
    while op not in seen:
        seen[op] = len(seen)
        op = waits_for[op]
    cycle = list(seen)[seen[op] :]
    cycle.reverse()
    return cycle
