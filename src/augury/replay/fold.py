"""Folding: identical ranks are simulated once.

A stable partition (native/rank_classes.hpp) divides the ranks into classes. The k-th operations of
all ranks of a class start and end together, so a graph of one representative rank per class, in
which references to a rank refer to its representative, has the same times.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from augury.core.columns import I4, I8
from augury.core.graph.graph import (
    NONE,
    Buffers,
    Carries,
    Edges,
    Graph,
    Interference,
    MeasuredSteps,
    Ops,
    Ranks,
    Resources,
)
from augury.core.timeline import CriticalPath, Reason
from augury.replay.engine import is_native_built
from augury.replay.op_times import OpTimes


@dataclass(frozen=True, kw_only=True, eq=False)
class FoldedGraph:
    """A graph of one representative rank per class, and its relation to the whole graph."""

    graph: Graph
    """Graph of one rank per class, in the order of their first appearance."""
    class_of_rank: I4
    op_of: I4
    """The folded operation that stands for each operation of the whole graph."""

    @property
    def num_classes(self) -> int:
        return len(self.graph.ranks)

    @cached_property
    def representative(self) -> I4:
        """For each folded operation, the first operation of the whole graph that it stands for."""
        first = np.empty(self.graph.num_ops, dtype=np.int32)
        first[self.op_of[::-1]] = np.arange(len(self.op_of) - 1, -1, -1, dtype=np.int32)
        return first

    def fold_work_ns(self, work_ns: I8) -> I8 | None:
        """Returns durations of the folded operations, or None if ``work_ns`` differs between
        operations that one folded operation stands for. ``work_ns`` may have several rows."""
        folded: I8 = work_ns[..., self.representative]
        return folded if np.array_equal(folded[..., self.op_of], work_ns) else None

    def with_work_ns(self, folded_work_ns: I8) -> FoldedGraph:
        """Returns the same classes with other durations: ranks whose operations change alike stay
        alike."""
        return replace(self, graph=self.graph.with_work_ns(folded_work_ns))

    def expand(self, op_times: OpTimes) -> OpTimes:
        """Returns times of the whole graph; causes still refer to folded operations."""
        return OpTimes(
            op_times.start_ns[self.op_of],
            op_times.end_ns[self.op_of],
            op_times.cause[self.op_of],
        )


def may_pay(graph: Graph) -> bool:
    """Whether it may pay to search for identical ranks, which takes as long as several replays.
    By their total work alone, at least half of the ranks must equal another one."""
    num_ranks = len(graph.ranks)
    if num_ranks < 2:
        return False
    work_ns = np.zeros(num_ranks, dtype=np.int64)
    np.add.at(work_ns, graph.ops.rank, graph.ops.work_ns)
    return 2 * len(set(work_ns.tolist())) <= num_ranks


def fold(graph: Graph) -> FoldedGraph | None:
    """Returns the folded graph, or None if no two ranks are alike."""
    if len(graph.ranks) < 2 or not is_native_built():
        return None
    from augury._native import rank_classes  # noqa: PLC0415
    from augury.replay.kernel import native_graph  # noqa: PLC0415

    class_of_rank, position, prints, num_classes = rank_classes(
        native_graph(graph), secrets.randbits(64)
    )
    if num_classes == len(graph.ranks):
        return None
    return _quotient(graph, class_of_rank, position, prints.reshape(-1, 2))


def _quotient(
    graph: Graph, class_of_rank: I4, position: I4, gang_prints: NDArray[np.uint64]
) -> FoldedGraph:
    ops = graph.ops
    _, representatives = np.unique(class_of_rank, return_index=True)
    is_kept = np.zeros(len(graph.ranks), dtype=bool)
    is_kept[representatives] = True
    kept = np.flatnonzero(is_kept[ops.rank])

    # Start of the operations of each class in a table of (class, position) -> folded id.
    sizes = np.bincount(class_of_rank[ops.rank[kept]], minlength=len(representatives))
    first = np.concatenate([[0], np.cumsum(sizes)])
    of_place = np.empty(len(kept), dtype=np.int32)
    place = first[class_of_rank[ops.rank]] + position
    of_place[place[kept]] = np.arange(len(kept), dtype=np.int32)
    op_of = of_place[place]

    resource_kept = (graph.resources.rank == NONE) | is_kept[graph.resources.rank]
    resource_of = _renumbered(resource_kept)
    columns = {name: values[kept] for name, values in ops.columns()}
    columns["rank"] = class_of_rank[columns["rank"]]
    columns["resource"] = resource_of[columns["resource"]]
    columns["gang"] = _gangs(columns["gang"], gang_prints)

    folded = Graph(
        ops=Ops(**columns),
        edges=_edges(graph, is_kept, op_of, len(kept)),
        carries=_carries(graph, is_kept, op_of),
        resources=_resources(graph, resource_kept, class_of_rank),
        interference=_interference(graph, resource_kept, resource_of),
        buffers=_buffers(graph, is_kept, class_of_rank, op_of),
        ranks=Ranks(**{name: v[representatives] for name, v in graph.ranks.columns()}),
        measured=MeasuredSteps.empty(),
        strings=graph.strings,
        meta=graph.meta,
    )
    return FoldedGraph(graph=folded, class_of_rank=class_of_rank, op_of=op_of)


def _renumbered(kept: NDArray[np.bool_]) -> I4:
    """Returns the new number of each kept item; index NONE still means NONE."""
    numbers = np.cumsum(kept, dtype=np.int32) - 1
    return np.append(np.where(kept, numbers, NONE), NONE).astype(np.int32)


def _gangs(gang: I4, prints: NDArray[np.uint64]) -> I4:
    """Merges gangs that are alike: representatives may have been members of different ones."""
    member = gang != NONE
    if not member.any():
        return gang
    keys = np.ascontiguousarray(prints[gang[member]]).view([("a", "<u8"), ("b", "<u8")]).ravel()
    _, number = np.unique(keys, return_inverse=True)
    merged = np.full(len(gang), NONE, dtype=np.int32)
    merged[member] = number
    return merged


def _edges(graph: Graph, is_kept: NDArray[np.bool_], op_of: I4, num_ops: int) -> Edges:
    dst = graph.edges.dst
    inside = is_kept[graph.ops.rank[dst]]
    src = graph.edges.sources()[inside]
    return Edges.from_pairs(op_of[src], op_of[dst[inside]], num_ops=num_ops)


def _carries(graph: Graph, is_kept: NDArray[np.bool_], op_of: I4) -> Carries:
    inside = is_kept[graph.ops.rank[graph.carries.dst]]
    return Carries(src=op_of[graph.carries.src[inside]], dst=op_of[graph.carries.dst[inside]])


def _resources(graph: Graph, kept: NDArray[np.bool_], class_of_rank: I4) -> Resources:
    columns = {name: values[kept] for name, values in graph.resources.columns()}
    rank = columns["rank"]
    columns["rank"] = np.where(rank == NONE, NONE, class_of_rank[rank])
    return Resources(**columns)


def _interference(graph: Graph, kept: NDArray[np.bool_], resource_of: I4) -> Interference:
    rules = graph.interference
    inside = kept[rules.victim] & kept[rules.aggressor]
    return Interference(
        victim=resource_of[rules.victim[inside]],
        aggressor=resource_of[rules.aggressor[inside]],
        rate=rules.rate[inside],
    )


def _buffers(graph: Graph, is_kept: NDArray[np.bool_], class_of_rank: I4, op_of: I4) -> Buffers:
    inside = is_kept[graph.buffers.rank]
    columns = {name: values[inside] for name, values in graph.buffers.columns()}
    columns["rank"] = class_of_rank[columns["rank"]]
    none_is_none = np.append(op_of, np.int32(NONE))
    columns["taken_by"] = none_is_none[columns["taken_by"]]
    columns["given_by"] = none_is_none[columns["given_by"]]
    return Buffers(**columns)


def unfold_path(graph: Graph, folded: FoldedGraph, path: CriticalPath) -> CriticalPath:
    """Returns the critical path of the whole graph: every hop of the folded path has a counterpart
    there, at the same times."""
    unfolding = _Unfolding(graph, folded)
    ops, reasons = path.op.tolist(), path.reason.tolist()
    whole = np.empty(len(ops), dtype=np.int32)
    op = int((folded.op_of == ops[-1]).argmax())
    whole[-1] = op
    for i in range(len(ops) - 1, 0, -1):
        op = whole[i - 1] = unfolding.awaited(op, reasons[i], ops[i - 1])
    return CriticalPath(op=whole, start_ns=path.start_ns, dur_ns=path.dur_ns, reason=path.reason)


class _Unfolding:
    """Finds operations of the whole graph. A path has many hops with few candidates each: views
    of memory are read much faster, one value at a time, than arrays."""

    def __init__(self, graph: Graph, folded: FoldedGraph) -> None:
        self._graph, self._folded = graph, folded
        self._op_of = memoryview(folded.op_of.data)
        waited_for = graph.predecessors
        self._first, self._waited_for = (
            memoryview(waited_for.first.data),
            memoryview(waited_for.dst.data),
        )

    def awaited(self, op: int, reason: int, before: int) -> int:
        """Returns the operation that ``op`` waited for, among those which ``before`` stands for."""
        if reason == Reason.SLOWED:
            return op
        if reason == Reason.RESOURCE:
            alike = self._copies.of(before)
            rank = self._graph.ops.rank
            return int(alike[(rank[alike] == rank[op]).argmax()])
        if reason == Reason.GANG:
            return self._one_of(self._graph.gang_members.of(int(self._graph.ops.gang[op])), before)
        for i in range(self._first[op], self._first[op + 1]):
            if self._op_of[self._waited_for[i]] == before:
                return self._waited_for[i]
        carries = self._graph.carries
        return self._one_of(carries.src[carries.dst == op], before)

    def _one_of(self, ops: I4, before: int) -> int:
        return int(ops[(self._folded.op_of[ops] == before).argmax()])

    @cached_property
    def _copies(self) -> Edges:
        """Operations of the whole graph that each folded one stands for."""
        number = np.arange(self._graph.num_ops, dtype=np.int32)
        return Edges.from_pairs(self._folded.op_of, number, num_ops=self._folded.graph.num_ops)
