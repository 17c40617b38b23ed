"""A folded graph's critical path, led through the ranks that it really passes."""

from __future__ import annotations

import numpy as np

from augury.core.columns import I4
from augury.core.graph.graph import Edges, Graph
from augury.core.timeline import CriticalPath, Reason
from augury.replay.fold import FoldedGraph


def unfold_path(graph: Graph, folded: FoldedGraph, path: CriticalPath) -> CriticalPath:
    """Every hop of the folded path has a counterpart in the whole graph, at the same times."""
    rows = list(zip(path.op.tolist(), path.reason.tolist(), strict=True))
    copies = Edges.from_pairs(
        folded.op_of,
        np.arange(graph.num_ops, dtype=np.int32),
        num_ops=folded.graph.num_ops,
    )
    whole = np.empty(len(rows), dtype=np.int32)
    op = int(copies.of(rows[-1][0])[0])
    whole[-1] = op
    for i in range(len(rows) - 1, 0, -1):
        reason, before = rows[i][1], rows[i - 1][0]
        op = _counterpart(graph, folded, copies, op, reason, before)
        whole[i - 1] = op
    return CriticalPath(op=whole, start_ns=path.start_ns, dur_ns=path.dur_ns, reason=path.reason)


def _counterpart(
    graph: Graph, folded: FoldedGraph, copies: Edges, op: int, reason: int, before: int
) -> int:
    """The operation that ``op`` waited for: that one of those which ``before`` stands for."""
    if reason == Reason.SLOWED:
        return op
    if reason == Reason.RESOURCE:
        alike = copies.of(before)
        return int(alike[(graph.ops.rank[alike] == graph.ops.rank[op]).argmax()])
    if reason == Reason.GANG:
        return _one_of(folded, graph.gang_members.of(int(graph.ops.gang[op])), before)
    waited_for = graph.predecessors.of(op)
    if not (folded.op_of[waited_for] == before).any():
        waited_for = graph.carries.src[graph.carries.dst == op]
    return _one_of(folded, waited_for, before)


def _one_of(folded: FoldedGraph, ops: I4, before: int) -> int:
    return int(ops[(folded.op_of[ops] == before).argmax()])
