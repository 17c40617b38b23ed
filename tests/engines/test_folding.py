"""Identical ranks simulated once give the times of all of them, to the nanosecond."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from augury.core.enums import OpKind, Role
from augury.core.graph.builder import GraphBuilder
from augury.core.graph.graph import Graph
from augury.core.graph.graph_spec import check
from augury.replay import kernel, reference
from augury.replay.engine import Engine
from augury.replay.fold import FoldedGraph, fold
from augury.replay.op_times import OpTimes
from tests.campaigns import campaign

from .strategies import COARSE, graphs, symmetric_graphs

some = campaign(200)
many = campaign(500)
"""More than 2,000 symmetric graphs together."""


def simulate_folded(graph: Graph, simulate: Engine) -> OpTimes:
    """Returns times of the whole graph, from the folded one if there is one."""
    folded = fold(graph)
    return simulate(graph) if folded is None else folded.expand(simulate(folded.graph))


def assert_folding_is_exact(graph: Graph) -> FoldedGraph | None:
    whole, folded = kernel.simulate(graph), simulate_folded(graph, kernel.simulate)
    assert folded.start_ns.tolist() == whole.start_ns.tolist()
    assert folded.end_ns.tolist() == whole.end_ns.tolist()
    return fold(graph)


# -- by hand -------------------------------------------------------------------------------


def _data_parallel(work_ns: list[int], *, ring: bool = False) -> Graph:
    """Each rank has an operation, a gang of all ranks, and an operation behind a ring."""
    b = GraphBuilder()
    num_ranks = len(work_ns)
    gang = b.gang()
    for _ in range(num_ranks):
        b.rank()
    streams = [b.resource("stream", rank=rank) for rank in range(num_ranks)]
    for rank in range(num_ranks):
        b.op("forward", rank=rank, resource=streams[rank], work_ns=work_ns[rank])
    for rank in range(num_ranks):
        b.op("reduce", kind=OpKind.ALL_REDUCE, rank=rank, work_ns=5, gang=gang, after=[rank])
    for rank in range(num_ranks):
        b.op("recv", rank=rank, resource=streams[rank], work_ns=2)
        b.edge((rank - 1) % num_ranks if ring else rank, 2 * num_ranks + rank)
    return b.build()


@pytest.mark.parametrize("ring", [False, True])
def test_identical_ranks_fold_into_one(ring: bool):
    graph = _data_parallel([7] * 64, ring=ring)
    folded = fold(graph)
    assert folded is not None
    assert folded.num_classes == 1
    assert folded.graph.num_ops == graph.num_ops // 64
    assert folded.class_of_rank.tolist() == [0] * 64
    assert folded.op_of.tolist() == [0] * 64 + [1] * 64 + [2] * 64
    assert_folding_is_exact(graph)


def test_a_straggler_is_a_class_of_its_own():
    folded = fold(_data_parallel([7, 7, 7, 20, 7, 7, 7, 7]))
    assert folded is not None
    assert folded.class_of_rank.tolist() == [0, 0, 0, 1, 0, 0, 0, 0]
    assert folded.graph.num_ops == 6


def test_on_a_ring_every_distance_from_the_straggler_is_its_own():
    assert fold(_data_parallel([7, 7, 7, 20, 7, 7, 7, 7], ring=True)) is None


def test_one_rank_is_not_folded():
    assert fold(_data_parallel([7])) is None


def test_a_common_stream_keeps_ranks_apart():
    b = GraphBuilder()
    switch = b.resource("switch")
    for _ in range(3):
        b.op("send", rank=b.rank(), resource=switch, work_ns=4)
    graph = b.build()
    assert fold(graph) is None
    assert kernel.simulate(graph).end_ns.tolist() == [4, 8, 12]


def test_workers_fold_beside_their_server():
    b = GraphBuilder()
    workers = [b.rank() for _ in range(4)]
    server = b.rank(role=Role.SERVER)
    cores = b.resource("cores", rank=server, width=2)
    for worker in workers:
        push = b.op("push", kind=OpKind.PUSH, rank=worker, work_ns=3)
        b.op("sum", rank=server, resource=cores, work_ns=2, after=[push], step=-1)
    b.op("update", rank=server, resource=cores, work_ns=1, after=[1, 3, 5, 7], step=-1)
    graph = b.build()
    folded = assert_folding_is_exact(graph)
    assert folded is not None
    assert folded.class_of_rank.tolist() == [0, 0, 0, 0, 1]
    assert kernel.simulate(graph).end_ns.tolist() == [3, 5, 3, 5, 3, 7, 3, 7, 8]


# -- random --------------------------------------------------------------------------------


@many
@given(symmetric_graphs(extras=True))
def test_identical_ranks_are_simulated_once(graph: Graph):
    folded = assert_folding_is_exact(graph)
    assert folded is not None
    assert folded.num_classes == 1
    assert folded.graph.num_ops * graph.num_ranks == graph.num_ops
    assert check(folded.graph) == []


@some
@given(symmetric_graphs(works=COARSE))
def test_identical_ranks_where_the_kernel_looks_ahead(graph: Graph):
    folded = assert_folding_is_exact(graph)
    assert folded is not None
    assert folded.num_classes == 1


@some
@given(symmetric_graphs(shared=True))
def test_identical_ranks_with_links(graph: Graph):
    folded = assert_folding_is_exact(graph)
    assert folded is not None
    assert folded.num_classes == 1


@some
@given(symmetric_graphs(shared=True, interference=True))
def test_identical_ranks_with_interference(graph: Graph):
    assert_folding_is_exact(graph)


@some
@given(symmetric_graphs(reaches=(0, 4, 1, 3)))
def test_pairs_round_a_ring_even_where_they_deadlock(graph: Graph):
    folded = assert_folding_is_exact(graph)
    assert folded is not None
    assert folded.num_classes == 1


@many
@given(symmetric_graphs(max_classes=3))
def test_a_few_kinds_of_ranks(graph: Graph):
    folded = assert_folding_is_exact(graph)
    assert folded is None or check(folded.graph) == []


@some
@given(symmetric_graphs(max_classes=3, reaches=(0, 3)))
def test_where_only_gangs_of_all_join_ranks_there_are_as_many_classes_as_kinds(graph: Graph):
    folded = assert_folding_is_exact(graph)
    kinds = {tuple(graph.ops.work_ns[graph.ops.rank == rank]) for rank in range(graph.num_ranks)}
    assert (graph.num_ranks if folded is None else folded.num_classes) == len(kinds)


@some
@given(symmetric_graphs(max_classes=3, reaches=(0, 4, 1, 2, 3), shared=True, interference=True))
def test_a_few_kinds_of_ranks_with_everything(graph: Graph):
    assert_folding_is_exact(graph)


@some
@given(symmetric_graphs(common=True, shared=True))
def test_what_ranks_have_in_common_keeps_them_apart(graph: Graph):
    folded = assert_folding_is_exact(graph)
    everybodys = int(np.flatnonzero(graph.resources.rank == -1)[0])
    if (graph.ops.resource == everybodys).any():
        assert folded is None
    else:
        assert folded is not None
        assert folded.num_classes == 1


@some
@given(graphs(gangs=True, may_deadlock=True, servers=True, shared=True, interference=True))
def test_ranks_that_are_alike_by_chance(graph: Graph):
    assert_folding_is_exact(graph)


@some
@given(symmetric_graphs(max_classes=2))
def test_the_reference_folds_as_exactly(graph: Graph):
    whole, folded = reference.simulate(graph), simulate_folded(graph, reference.simulate)
    assert folded.start_ns.tolist() == whole.start_ns.tolist()
    assert folded.end_ns.tolist() == whole.end_ns.tolist()
