"""Step ends that wait for devices, for changes that let host threads run ahead of them."""

from __future__ import annotations

import numpy as np

from augury.core.enums import OpKind, ResourceKind
from augury.core.graph.graph import NONE, Edges, Graph

Mask = np.ndarray[tuple[int], np.dtype[np.bool_]]


def on_device(graph: Graph) -> Mask:
    """Marks operations with work on streams of devices."""
    resource = graph.ops.resource
    kinds = np.append(graph.resources.kind, ResourceKind.OTHER)
    return np.asarray(
        (resource != NONE)
        & np.isin(kinds[resource], [ResourceKind.COMPUTE, ResourceKind.COMMUNICATION])
    )


def with_device_ends(graph: Graph) -> Graph:
    """Makes the end of each step wait for the last operation of the step on every stream of its
    rank. As recorded, a step may end while its kernels are queued: the host thread reaches its end
    as fast as it can launch, which is the step only as long as the host is the slower one."""
    ops = graph.ops
    ends = np.flatnonzero(ops.kind == OpKind.STEP_END)
    if not len(ends):
        return graph
    end_of = dict(zip(zip(ops.rank[ends].tolist(), ops.step[ends].tolist(), strict=True),
                      ends.tolist(), strict=True))  # fmt: skip
    rows = np.flatnonzero(on_device(graph) & (ops.step >= 0))
    # Of equal keys the last one counts: ids on a stream rise in its order.
    keys = zip(ops.rank[rows].tolist(), ops.step[rows].tolist(), ops.resource[rows].tolist(),
               strict=True)  # fmt: skip
    last = dict(zip(keys, rows.tolist(), strict=True))
    added = [
        (op, end_of[rank, step]) for (rank, step, _), op in last.items() if (rank, step) in end_of
    ]
    added = [(op, end) for op, end in added if end not in graph.edges.of(op)]
    if not added:
        return graph
    more = np.array(added, dtype=np.int32)
    src = np.concatenate([graph.edges.sources(), more[:, 0]])
    dst = np.concatenate([graph.edges.dst, more[:, 1]])
    return graph.evolve(edges=Edges.from_pairs(src, dst, num_ops=graph.num_ops))
