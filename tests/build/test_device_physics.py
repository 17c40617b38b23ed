"""Changes of real device runs: predictions move in the right direction, and by no more than the
time that was changed."""

import os
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from augury.build.recorded.recorded_graph import build_recorded
from augury.core.columns import I8
from augury.core.enums import OpKind, ResourceKind, are_communication
from augury.core.graph.builder import GraphBuilder
from augury.core.graph.graph import NONE, Graph
from augury.ingest.imported import import_traces
from augury.replay.run import replay

TRACES = os.environ.get("AUGURY_TRACES")

pytestmark = pytest.mark.skipif(
    not TRACES, reason="AUGURY_TRACES does not name the folder of traces"
)

SETS = ("dlrm8_v100", "torchrec_dlrm4_a", "torchrec_dlrm4_b", "torchrec_resnet18_2")
SETS_OF_ONE_RANK = ("nccl_args_a100", "rccl_args_mi300")


@cache
def _graph(name: str) -> Graph:
    assert TRACES is not None
    return build_recorded(import_traces([Path(TRACES) / name]))


def _ends_ns(graph: Graph) -> I8:
    """Ends of all steps of all ranks."""
    return replay(graph).rank_steps.end_ns


def _moved_ns(graph: Graph, changed: NDArray[np.bool_], factor: float) -> tuple[I8, int]:
    """Returns how much later the steps end if the changed operations take ``factor`` times as long,
    and how much time the change adds in all."""
    work_ns = np.where(changed, graph.ops.work_ns * factor, graph.ops.work_ns).astype(np.int64)
    added_ns = int((work_ns - graph.ops.work_ns).sum())
    return _ends_ns(graph.with_work_ns(work_ns)) - _ends_ns(graph), added_ns


def _on_host(graph: Graph) -> NDArray[np.bool_]:
    kind = np.append(graph.resources.kind, ResourceKind.OTHER)[graph.ops.resource]
    return kind == ResourceKind.HOST


@pytest.mark.parametrize("name", [*SETS, *SETS_OF_ONE_RANK])
def test_faster_transfers_end_no_step_later_and_gain_no_more_than_their_time(name: str):
    graph = _graph(name)
    transfers = are_communication(graph.ops.kind)
    moved_ns, added_ns = _moved_ns(graph, transfers, 0.5)
    assert added_ns < 0
    assert added_ns <= moved_ns.min()
    assert moved_ns.max() <= 0


@pytest.mark.parametrize("name", [*SETS, *SETS_OF_ONE_RANK])
def test_slower_transfers_end_no_step_earlier_and_cost_no_more_than_their_time(name: str):
    graph = _graph(name)
    transfers = are_communication(graph.ops.kind)
    moved_ns, added_ns = _moved_ns(graph, transfers, 1000)
    assert moved_ns.min() >= 0
    assert 0 < moved_ns.max() <= added_ns


@pytest.mark.parametrize("name", [*SETS, *SETS_OF_ONE_RANK])
def test_a_host_without_gaps_gains_no_more_than_the_gaps(name: str):
    graph = _graph(name)
    gaps = _on_host(graph) & (graph.ops.kind == OpKind.UNEXPLAINED)
    moved_ns, added_ns = _moved_ns(graph, gaps, 0)
    assert added_ns <= moved_ns.min()
    assert moved_ns.max() <= 0
    # A host that is ahead of its device gains nothing.
    assert moved_ns.min() < 0 or name == "rccl_args_mi300"
    idle_ns, _ = _moved_ns(graph, _on_host(graph), 0)
    assert (idle_ns <= moved_ns).all()


def _without(graph: Graph, rank: int) -> Graph:
    """Returns the graph of the other ranks, which no longer wait for this one."""
    b = GraphBuilder(meta=graph.meta)
    row_of = {}
    for row in range(len(graph.ranks)):
        if row != rank:
            row_of[row] = b.rank()
    resource_of = {NONE: NONE}
    for i in range(len(graph.resources)):
        if graph.resources.rank[i] != rank:
            kind = ResourceKind(int(graph.resources.kind[i]))
            own = row_of[int(graph.resources.rank[i])]
            resource_of[i] = b.resource(graph.resource_name(i), rank=own, kind=kind)
    op_of = {}
    ops = graph.ops
    for op in np.flatnonzero(ops.rank != rank).tolist():
        op_of[op] = b.op(
            graph.op_name(op),
            kind=OpKind(int(ops.kind[op])),
            rank=row_of[int(ops.rank[op])],
            resource=resource_of[int(ops.resource[op])],
            work_ns=int(ops.work_ns[op]),
            size_bytes=int(ops.size_bytes[op]),
            gang=int(ops.gang[op]),
            step=int(ops.step[op]),
        )
    sources = graph.edges.sources()
    for src, dst in zip(sources.tolist(), graph.edges.dst.tolist(), strict=True):
        if src in op_of and dst in op_of:
            b.edge(op_of[src], op_of[dst])
    return b.build()


@pytest.mark.parametrize("name", SETS)
def test_without_the_slowest_rank_no_other_rank_ends_later(name: str):
    graph = _graph(name)
    columns = dict(graph.ops.columns()) | {"gang": np.full(graph.num_ops, NONE, dtype=np.int32)}
    alone_ns = _ends_ns(graph.evolve(ops=type(graph.ops)(**columns)))
    steps = replay(graph).rank_steps
    gains_ns = []
    for rank in range(len(graph.ranks)):
        others = steps.rank != rank
        after_ns = _ends_ns(_without(graph, rank))
        assert (after_ns <= steps.end_ns[others]).all()
        # Ranks that wait for no rank at all are the fastest.
        assert (after_ns >= alone_ns[others]).all()
        gains_ns.append(int((steps.end_ns[others] - after_ns).max()))
    if len(graph.ranks) > 2:
        assert max(gains_ns) > 0
