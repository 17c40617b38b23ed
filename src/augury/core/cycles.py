"""Finding a cycle among edges."""

from __future__ import annotations

import numpy as np

from augury.core.graph import Edges


def find_cycle(edges: Edges) -> list[int]:
    """The operations of one cycle in order, or nothing. Builders mostly number operations in
    an order that rules cycles out at a glance; only other graphs are walked."""
    if (edges.sources() < edges.dst).all():
        return []
    try:
        from augury._native import unsorted_remainder  # noqa: PLC0415
    except ImportError:
        left = _unsorted_remainder(edges)
    else:
        left = unsorted_remainder(edges.first, edges.dst)
    return _walk(edges, left) if len(left) else []


def _unsorted_remainder(edges: Edges) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    """What Kahn's algorithm cannot reach: operations on a cycle or behind one."""
    num_ops = len(edges.first) - 1
    missing = np.bincount(edges.dst, minlength=num_ops).tolist()
    first, dst = edges.first.tolist(), edges.dst.tolist()
    stack = [op for op in range(num_ops) if missing[op] == 0]
    while stack:
        op = stack.pop()
        for successor in dst[first[op] : first[op + 1]]:
            missing[successor] -= 1
            if missing[successor] == 0:
                stack.append(successor)
    return np.flatnonzero(np.asarray(missing) > 0).astype(np.int32)


def _walk(edges: Edges, left: np.ndarray[tuple[int], np.dtype[np.int32]]) -> list[int]:
    """Every operation left waits for another one left: going back must come round."""
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
