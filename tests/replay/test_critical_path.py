"""The critical path covers the makespan, and the reason of each row is correct."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from augury.core.graph.builder import GraphBuilder
from augury.core.graph.graph import Graph
from augury.core.timeline import CriticalPath, Reason
from augury.replay import critical_path as module
from augury.replay import kernel, reference
from augury.replay.critical_path import critical_path, last_to_end, walk_back_in_python
from augury.replay.op_times import OpTimes
from tests.engines.strategies import COARSE, graphs, large_graph, pipelines, symmetric_graphs

from .path_truth import assert_path_is_true, assert_tiles

some = settings(max_examples=60)

FLAVOURS = [
    pytest.param(graphs(), id="plain"),
    pytest.param(graphs(gangs=True), id="gangs"),
    pytest.param(graphs(gangs=True, works=COARSE, straggler=True), id="looking-ahead"),
    pytest.param(graphs(gangs=True, shared=True), id="shared"),
    pytest.param(graphs(gangs=True, shared=True, interference=True), id="interference"),
    pytest.param(graphs(gangs=True, servers=True, straggler=True), id="servers"),
    pytest.param(symmetric_graphs(max_classes=2, shared=True), id="symmetric"),
    pytest.param(pipelines(), id="pipelines"),
]
every_flavour = pytest.mark.parametrize("flavour", FLAVOURS)

Row = tuple[int, int, int, Reason]


def _rows(path: CriticalPath) -> list[Row]:
    columns = (path.op, path.start_ns, path.dur_ns)
    reasons = [Reason(reason) for reason in path.reason.tolist()]
    return list(zip(*(column.tolist() for column in columns), reasons, strict=True))


# -- random graphs -------------------------------------------------------------------------


@every_flavour
@some
@given(data=st.data())
def test_tells_the_truth(flavour: st.SearchStrategy[Graph], data: st.DataObject):
    graph = data.draw(flavour)
    op_times = kernel.simulate(graph)
    path = critical_path(graph, op_times)
    assert_tiles(path, 0, int(op_times.end_ns.max()))
    assert_path_is_true(graph, op_times, path)
    assert path == walk_back_in_python(graph, op_times, last_to_end(op_times), 0)


@every_flavour
@some
@given(data=st.data())
def test_since_clips_it(flavour: st.SearchStrategy[Graph], data: st.DataObject):
    graph = data.draw(flavour)
    op_times = kernel.simulate(graph)
    last_op = data.draw(st.integers(0, graph.num_ops - 1), label="last_op")
    end_ns = int(op_times.end_ns[last_op])
    since_ns = data.draw(st.integers(0, end_ns), label="since_ns")
    whole = critical_path(graph, op_times, last_op=last_op)
    clipped = critical_path(graph, op_times, last_op=last_op, since_ns=since_ns)
    assert clipped == walk_back_in_python(graph, op_times, last_op, since_ns)
    assert_tiles(whole, 0, end_ns)
    assert_tiles(clipped, since_ns, end_ns)
    # It is the end of the whole path: each row, except that the first begins later.
    tail = len(clipped)
    assert clipped.op.tolist() == whole.op[-tail:].tolist()
    assert clipped.reason.tolist() == whole.reason[-tail:].tolist()
    assert clipped.start_ns.tolist() == np.maximum(whole.start_ns[-tail:], since_ns).tolist()
    assert (whole.start_ns + whole.dur_ns)[:-tail].max(initial=0) <= since_ns


@pytest.mark.parametrize("flavour", [{}, {"works": COARSE}, {"shared": True, "interference": True}])
def test_tells_the_truth_of_large_graphs(flavour: dict[str, object]):
    graph = large_graph(5, num_records=1_000, gangs=True, **flavour)
    op_times = kernel.simulate(graph)
    path = critical_path(graph, op_times)
    assert len(path) > 50
    assert_tiles(path, 0, int(op_times.end_ns.max()))
    assert_path_is_true(graph, op_times, path)
    assert path == walk_back_in_python(graph, op_times, last_to_end(op_times), 0)


# -- by hand -------------------------------------------------------------------------------

Walk = Callable[[Graph, OpTimes], CriticalPath]


def _natively(graph: Graph, op_times: OpTimes) -> CriticalPath:
    return critical_path(graph, op_times)


def _in_python(graph: Graph, op_times: OpTimes) -> CriticalPath:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "is_native_built", lambda: False)
        return critical_path(graph, op_times)


every_walk = pytest.mark.parametrize("walk", [_natively, _in_python])


@every_walk
def test_one_operation_is_its_own_path(walk: Walk):
    b = GraphBuilder()
    b.op("only", rank=b.rank(), work_ns=7)
    graph = b.build()
    assert _rows(walk(graph, reference.simulate(graph))) == [(0, 0, 7, Reason.START)]


@every_walk
def test_of_two_that_end_last_the_first_counts(walk: Walk):
    b = GraphBuilder()
    rank = b.rank()
    for work_ns in (3, 7, 7):
        b.op("op", rank=rank, work_ns=work_ns)
    graph = b.build()
    assert _rows(walk(graph, reference.simulate(graph))) == [(1, 0, 7, Reason.START)]


@every_walk
def test_an_occupied_resource_is_the_cause(walk: Walk):
    b = GraphBuilder()
    rank = b.rank()
    stream = b.resource("stream", rank=rank)
    b.op("first", rank=rank, resource=stream, work_ns=4)
    b.op("second", rank=rank, resource=stream, work_ns=5)
    b.op("third", rank=rank, work_ns=1, after=[1])
    graph = b.build()
    assert _rows(walk(graph, reference.simulate(graph))) == [
        (0, 0, 4, Reason.START),
        (1, 4, 5, Reason.RESOURCE),
        (2, 9, 1, Reason.DATA),
    ]


@every_walk
def test_the_last_rank_to_arrive(walk: Walk):
    b = GraphBuilder()
    gang = b.gang()
    for work_ns in (3, 8):
        rank = b.rank()
        b.op("compute", rank=rank, work_ns=work_ns)
    for rank in range(2):
        b.op("reduce", rank=rank, work_ns=10, gang=gang, after=[rank])
    b.op("update", rank=0, work_ns=1, after=[2])
    graph = b.build()
    # Rank 0 continues from its own reduction (2), which waited for rank 1's (3), from 8 on.
    assert _rows(walk(graph, reference.simulate(graph))) == [
        (1, 0, 8, Reason.START),
        (3, 8, 0, Reason.DATA),
        (2, 8, 10, Reason.GANG),
        (4, 18, 1, Reason.DATA),
    ]


@every_walk
def test_what_sharing_adds_is_a_row_of_its_own(walk: Walk):
    b = GraphBuilder()
    rank = b.rank()
    link = b.shared_resource("link", rank=rank)
    b.op("a", rank=rank, resource=link, work_ns=10)
    b.op("b", rank=rank, resource=link, work_ns=30)
    graph = b.build()
    # Both at half speed until 20; then 20 left at full speed: 40 instead of 30.
    assert _rows(walk(graph, reference.simulate(graph))) == [
        (1, 0, 30, Reason.START),
        (1, 30, 10, Reason.SLOWED),
    ]


@every_walk
def test_since_the_middle_of_a_row(walk: Walk):
    b = GraphBuilder()
    rank = b.rank()
    first = b.op("first", rank=rank, work_ns=10)
    b.op("second", rank=rank, work_ns=5, after=[first])
    graph = b.build()
    op_times = reference.simulate(graph)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "is_native_built", lambda: walk is _natively)
        clipped = critical_path(graph, op_times, since_ns=4)
        of_first = critical_path(graph, op_times, last_op=0)
    assert _rows(clipped) == [(0, 4, 6, Reason.START), (1, 10, 5, Reason.DATA)]
    assert _rows(of_first) == [(0, 0, 10, Reason.START)]
