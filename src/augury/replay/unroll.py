"""Unrolls a loop: copies a window several times, joined by its carried edges."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from augury.core.columns import I4
from augury.core.errors import GraphError
from augury.core.graph.graph import NONE, Buffers, Carries, Edges, Graph, Ops


def unroll(graph: Graph, times: int) -> Graph:
    """Returns ``times`` copies of the window, each joined to the next by the carried edges.
    Operation ``op`` of copy k is ``op + k * graph.num_ops``. Measured steps are not copied."""
    if times == 1:
        return graph
    ops, num_ops = graph.ops, graph.num_ops
    columns = {name: np.tile(values, times) for name, values in ops.columns()}
    copy_of = np.repeat(np.arange(times, dtype=np.int32), num_ops)
    columns["step"] = _shifted(columns["step"], copy_of * _span(ops.step, times))
    columns["gang"] = _shifted(columns["gang"], copy_of * graph.num_gangs)
    return graph.evolve(
        ops=Ops(**columns),
        edges=_edges(graph, times),
        carries=Carries(src=graph.carries.src + (times - 1) * num_ops, dst=graph.carries.dst),
        buffers=_buffers(graph, times),
    )


def _span(step: I4, times: int) -> int:
    """Returns the difference of step numbers from one copy to the next."""
    steps = step[step != NONE]
    if not len(steps):
        return 0
    first, last = int(steps.min()), int(steps.max())
    span = last - first + 1
    if last + (times - 1) * span > np.iinfo(np.int32).max:
        raise GraphError(
            f"steps {first} to {last} cannot be continued: their numbers get too large",
            remedy="number the steps of the graph from 0",
        )
    return span


def _shifted(values: I4, by: I4) -> I4:
    return np.where(values == NONE, NONE, values + by).astype(np.int32)


def _edges(graph: Graph, times: int) -> Edges:
    edges, carries, num_ops = graph.edges, graph.carries, graph.num_ops
    if not len(carries):
        offsets = np.arange(times, dtype=np.int32)[:, None]
        first = (edges.first[:-1][None, :] + offsets * len(edges.dst)).ravel()
        dst = (edges.dst[None, :] + offsets * num_ops).ravel()
        return Edges(first=np.append(first, len(dst)), dst=dst)
    within = _repeat_pairs(edges.sources(), edges.dst, np.arange(times), num_ops)
    joins = _repeat_pairs(carries.src, carries.dst + num_ops, np.arange(times - 1), num_ops)
    return Edges.from_pairs(
        np.concatenate([within[0], joins[0]]),
        np.concatenate([within[1], joins[1]]),
        num_ops=times * num_ops,
    )


def _repeat_pairs(src: I4, dst: I4, copies: NDArray[np.int64], num_ops: int) -> tuple[I4, I4]:
    offsets = (copies * num_ops).astype(np.int32)[:, None]
    return (src[None, :] + offsets).ravel(), (dst[None, :] + offsets).ravel()


def _buffers(graph: Graph, times: int) -> Buffers:
    """Copies buffers. Those held from the beginning exist once, others in every copy."""
    buffers, num_ops = graph.buffers, graph.num_ops
    parts: list[dict[str, NDArray[np.int64]]] = []
    for copy in range(times):
        kept = (buffers.taken_by != NONE) | (copy == 0)
        part = {name: values[kept].astype(np.int64) for name, values in buffers.columns()}
        later = part["later"] == 1
        last = copy == times - 1
        given_in = np.where(later & (not last), copy + 1, np.where(later, 0, copy))
        part["given_by"] = np.where(
            part["given_by"] == NONE, NONE, part["given_by"] + given_in * num_ops
        )
        part["taken_by"] = np.where(
            part["taken_by"] == NONE, NONE, part["taken_by"] + copy * num_ops
        )
        part["later"] = (later & last).astype(np.int64)
        parts.append(part)
    names = [name for name, _ in Buffers.schema()]
    return Buffers(**{name: np.concatenate([p[name] for p in parts]) for name in names})
