from __future__ import annotations

from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from hypothesis import given

from augury.core.enums import OpKind, Role
from augury.core.graph.builder import GraphBuilder
from augury.core.graph.graph import Edges, Graph
from augury.core.timeline import CriticalPath, RankSteps, ResourceUtilization, Timeline
from tests.engines.strategies import graphs


def _graph() -> Graph:
    b = GraphBuilder()
    for role in (Role.WORKER, Role.WORKER, Role.SERVER):
        b.rank(role=role)
    stream = b.resource("stream", rank=0)
    gang = b.gang()
    b.op("forward", kind=OpKind.FORWARD, rank=0, resource=stream, work_ns=3, step=0)
    b.op("reduce", kind=OpKind.ALL_REDUCE, rank=0, work_ns=2, gang=gang, after=[0], step=0)
    b.op("reduce", kind=OpKind.ALL_REDUCE, rank=1, work_ns=2, gang=gang, step=4)
    b.op("sum", kind=OpKind.SERVER_SUM, rank=2, work_ns=2, after=[1, 2], step=-1)
    return b.build()


def test_counts():
    graph = _graph()
    assert graph.num_ops == 4
    assert graph.num_ranks == 2
    assert graph.num_gangs == 1
    assert graph.num_steps == 2
    assert graph.gang_members.of(0).tolist() == [1, 2]
    assert graph.is_exclusive


def test_a_graph_without_gangs_has_none():
    b = GraphBuilder()
    b.rank()
    b.op("a", rank=0, work_ns=1)
    graph = b.build()
    assert graph.num_gangs == 0
    assert len(graph.gang_members.dst) == 0


def test_sharing_or_interference_makes_durations_depend():
    for extend in (
        lambda b: b.shared_resource("link"),
        lambda b: b.interfere(victim=b.resource("a"), aggressor=b.resource("b"), rate=0.5),
    ):
        b = GraphBuilder()
        b.rank()
        b.op("a", rank=0, work_ns=1)
        extend(b)
        assert not b.build().is_exclusive


def test_messages_name_an_operation_by_what_it_is():
    assert _graph().op_label(2) == "'reduce' (all_reduce, rank 1, op 2)"


def test_a_graph_cannot_be_changed():
    graph = _graph()
    with pytest.raises(FrozenInstanceError):
        graph.meta = {}  # type: ignore[misc]
    with pytest.raises(ValueError, match="read-only"):
        graph.ops.work_ns[0] = 1


def test_evolving_makes_another_and_shares_the_rest():
    graph = _graph()
    assert graph.num_gangs == 1
    ops = graph.ops
    columns = dict(ops.columns()) | {"gang": np.full(4, -1)}
    other = graph.evolve(ops=type(ops)(**columns), meta={"a": "b"})
    assert other.num_gangs == 0
    assert other.edges is graph.edges
    assert graph.meta == {}


def test_equality_is_by_content_and_hash_by_identity():
    graph = _graph()
    assert graph == _graph()
    assert graph != graph.evolve(meta={"a": "b"})
    assert graph != "graph"
    assert len({graph, _graph()}) == 2


@given(graphs(gangs=True))
def test_predecessors_are_the_edges_turned_round(graph: Graph):
    forward = sorted(zip(graph.edges.sources().tolist(), graph.edges.dst.tolist(), strict=True))
    backward = graph.predecessors
    turned = zip(backward.dst.tolist(), backward.sources().tolist(), strict=True)
    assert sorted(turned) == forward


def test_edges_from_no_pairs():
    none = np.empty(0, dtype=np.int32)
    edges = Edges.from_pairs(none, none, num_ops=3)
    assert edges.first.tolist() == [0, 0, 0, 0]
    assert edges.sources().tolist() == []


def test_a_timeline_knows_how_long_it_is():
    graph = _graph()
    timeline = Timeline(
        graph=graph,
        start_ns=np.array([0, 3, 0, 5]),
        end_ns=np.array([3, 5, 5, 7]),
        step_ns=7,
        rank_step_ns=(7, 7, 0),
        rank_steps=RankSteps.empty(),
        critical_path=CriticalPath.empty(),
        utilization=ResourceUtilization.empty(),
        peak_memory=(),
        num_simulated_ops=4,
    )
    assert timeline.makespan_ns == 7
