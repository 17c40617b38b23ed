from __future__ import annotations

import doctest

import numpy as np
import pytest

from augury.core.enums import Discipline, MemoryKind, OpKind, ResourceKind, Role
from augury.core.errors import GraphError, UsageError
from augury.core.graph import builder as builder_module
from augury.core.graph.builder import UNLIMITED_WIDTH, GraphBuilder
from augury.core.graph.graph import NONE, RATE_ONE


def test_the_example_in_the_documentation_is_true():
    assert doctest.testmod(builder_module).failed == 0


def test_everything_that_goes_in_comes_out():
    b = GraphBuilder(meta={"model": "resnet50"})
    worker = b.rank(host="alpha")
    server = b.rank(role=Role.SERVER, host="beta")
    stream = b.resource(
        "stream",
        rank=worker,
        kind=ResourceKind.HOST,
        width=3,
        discipline=Discipline.FIFO,
    )
    link = b.shared_resource("link", rank=server, kind=ResourceKind.LINK_IN, capacity=1.5, width=4)
    b.interfere(victim=stream, aggressor=link, rate=0.25)
    gang = b.gang()
    forward = b.op("forward", kind=OpKind.FORWARD, rank=worker, work_ns=5, layer="conv1", step=2)
    push = b.op(
        "push",
        kind=OpKind.PUSH,
        rank=worker,
        resource=stream,
        work_ns=7,
        after=[forward],
        size_bytes=100,
        priority=-3,
        gang=gang,
    )
    pull = b.op(
        "pull", kind=OpKind.PULL, rank=server, resource=link, work_ns=7, size_bytes=100, gang=gang
    )
    b.edge(forward, pull)
    b.carry(pull, forward)
    b.buffer(
        64,
        rank=worker,
        kind=MemoryKind.GRADIENT,
        taken_by=forward,
        given_by=push,
        later=True,
        layer="conv1",
    )
    b.measured_step(rank=worker, step=2, dur_ns=20, explained_ns=15)
    b.ledger.note("gap", "something was missing")
    graph = b.build()

    ops = graph.ops
    assert [graph.op_name(op) for op in (forward, push, pull)] == ["forward", "push", "pull"]
    assert ops.kind.tolist() == [OpKind.FORWARD, OpKind.PUSH, OpKind.PULL]
    assert ops.rank.tolist() == [worker, worker, server]
    assert ops.resource.tolist() == [NONE, stream, link]
    assert ops.work_ns.tolist() == [5, 7, 7]
    assert ops.size_bytes.tolist() == [0, 100, 100]
    assert ops.priority.tolist() == [0, -3, 0]
    assert ops.gang.tolist() == [NONE, gang, gang]
    assert ops.step.tolist() == [2, 0, 0]
    assert [graph.strings[i] for i in ops.layer] == ["conv1", "", ""]
    assert graph.edges.of(forward).tolist() == [push, pull]
    assert graph.edges.sources().tolist() == [forward, forward]
    assert (graph.carries.src.tolist(), graph.carries.dst.tolist()) == ([pull], [forward])
    resources = graph.resources
    assert resources.kind.tolist() == [ResourceKind.HOST, ResourceKind.LINK_IN]
    assert resources.rank.tolist() == [worker, server]
    assert resources.width.tolist() == [3, 4]
    assert resources.capacity.tolist() == [0, RATE_ONE * 3 // 2]
    assert resources.discipline.tolist() == [Discipline.FIFO, Discipline.PRIORITY]
    assert [graph.resource_name(r) for r in (stream, link, NONE)] == ["stream", "link", ""]
    interference = graph.interference
    assert interference.victim.tolist() == [stream]
    assert interference.aggressor.tolist() == [link]
    assert interference.rate.tolist() == [RATE_ONE // 4]
    buffers = {name: values.tolist() for name, values in graph.buffers.columns()}
    assert graph.strings[buffers.pop("layer")[0]] == "conv1"
    assert buffers == {
        "rank": [worker],
        "size_bytes": [64],
        "kind": [MemoryKind.GRADIENT],
        "taken_by": [forward],
        "given_by": [push],
        "later": [1],
    }
    assert [graph.strings[i] for i in graph.ranks.host] == ["alpha", "beta"]
    assert {name: values.tolist() for name, values in graph.measured.columns()} == {
        "rank": [worker],
        "step": [2],
        "dur_ns": [20],
        "explained_ns": [15],
    }
    assert graph.meta == {"model": "resnet50"}
    assert graph.ledger["gap"].count == 1


def test_ids_count_up_from_zero_in_each_table():
    b = GraphBuilder()
    assert [b.rank() for _ in range(3)] == [0, 1, 2]
    assert [b.resource("a"), b.shared_resource("b"), b.resource("c")] == [0, 1, 2]
    assert [b.gang(), b.gang()] == [0, 1]
    assert [b.op("o", rank=r, work_ns=1) for r in range(3)] == [0, 1, 2]
    assert [b.buffer(1, rank=0), b.buffer(2, rank=0)] == [0, 1]
    assert b.interfere(victim=0, aggressor=1, rate=0.5) == 0
    assert b.num_ops == 3


def test_equal_names_are_stored_once():
    b = GraphBuilder()
    b.rank(host="same")
    b.resource("same")
    b.op("same", rank=0, work_ns=1, layer="same")
    b.op("other", rank=0, work_ns=1)
    assert list(b.build().strings) == ["same", "other"]


def test_edges_may_come_in_any_order_and_twice():
    b = GraphBuilder()
    b.rank()
    ops = [b.op("o", rank=0, work_ns=1) for _ in range(4)]
    for src, dst in ((2, 3), (3, 0), (2, 1), (2, 3)):
        b.edge(ops[src], ops[dst])
    graph = b.build()
    assert [graph.edges.of(op).tolist() for op in ops] == [[], [], [1, 3, 3], [0]]
    assert [graph.predecessors.of(op).tolist() for op in ops] == [[3], [2], [], [2, 2]]


def test_a_builder_can_go_on_after_building():
    b = GraphBuilder()
    b.rank()
    b.op("a", rank=0, work_ns=1)
    before = b.build()
    b.op("b", rank=0, work_ns=2, after=[0])
    after = b.build()
    assert (before.num_ops, after.num_ops) == (1, 2)


def test_a_shared_resource_takes_whoever_comes_unless_told():
    b = GraphBuilder()
    b.rank()
    b.shared_resource("link")
    b.op("a", rank=0, work_ns=1)
    assert b.build().resources.width.tolist() == [UNLIMITED_WIDTH]


@pytest.mark.parametrize("capacity", [0, -1, float("nan"), float("inf"), 1e300])
def test_a_capacity_must_be_a_positive_number(capacity: float):
    with pytest.raises(UsageError, match="'link' has capacity"):
        GraphBuilder().shared_resource("link", capacity=capacity)


@pytest.mark.parametrize("rate", [0, -0.5, 1.5, float("nan"), float("inf"), 1e300])
def test_a_rate_of_interference_must_be_a_fraction(rate: float):
    b = GraphBuilder()
    b.rank()
    victim, aggressor = b.resource("a"), b.resource("b")
    b.op("op", rank=0, work_ns=1)
    with pytest.raises((UsageError, GraphError), match="interfer"):
        _interfere_and_build(b, victim, aggressor, rate)


def _interfere_and_build(b: GraphBuilder, victim: int, aggressor: int, rate: float) -> None:
    """What is no number is refused at once, the rest by the specification."""
    b.interfere(victim=victim, aggressor=aggressor, rate=rate)
    b.build()


@pytest.mark.parametrize("src", [-1, 1, 7])
def test_an_edge_from_nowhere_is_refused(src: int):
    b = GraphBuilder()
    b.rank()
    b.op("a", rank=0, work_ns=1)
    b.edge(src, 0)
    with pytest.raises(UsageError, match=f"starts at operation {src}, which does not exist"):
        b.build()


def test_an_edge_to_nowhere_is_refused():
    b = GraphBuilder()
    b.rank()
    b.op("a", rank=0, work_ns=1)
    b.edge(0, 5)
    with pytest.raises(GraphError, match="from operation 0 to 5, which does not exist"):
        b.build()


def test_nothing_at_all_is_refused():
    with pytest.raises(GraphError, match="no operations"):
        GraphBuilder().build()


def test_a_value_that_does_not_fit_its_column_is_refused_and_leaves_no_half_row():
    b = GraphBuilder()
    b.rank()
    with pytest.raises(UsageError, match="work_ns"):
        b.op("too long", rank=0, work_ns=1 << 63)
    with pytest.raises(UsageError, match="priority"):
        b.op("too urgent", rank=0, work_ns=1, priority=-(1 << 40))
    b.op("fine", rank=0, work_ns=1)
    graph = b.build()
    assert graph.num_ops == 1
    assert graph.op_name(0) == "fine"


def test_numpy_integers_are_integers():
    b = GraphBuilder()
    b.rank()
    b.op("a", rank=np.int32(0), work_ns=np.int64(5))
    assert b.build().ops.work_ns.tolist() == [5]


def test_columns_of_operations_equal_operations_added_one_by_one():
    works, steps = [5, 0, 7], [0, 1, 1]
    single, whole = GraphBuilder(), GraphBuilder()
    for b in (single, whole):
        b.rank()
        b.resource("stream", rank=0)
    for i, name in enumerate(("a", "b", "a")):
        single.op(
            name,
            kind=OpKind.FORWARD,
            rank=0,
            resource=0,
            work_ns=works[i],
            layer="conv",
            step=steps[i],
            after=range(i),
        )
    conv, *names = (whole.string(text) for text in ("conv", "a", "b", "a"))
    first = whole.ops(
        np.array(names),
        kind=OpKind.FORWARD,
        rank=0,
        resource=0,
        work_ns=np.array(works),
        layer=conv,
        step=np.array(steps),
    )
    assert first == 0
    whole.edges(0, np.array([1, 2]))
    whole.edges(np.array([1]), np.array([2]))
    one, other = single.build(), whole.build()
    assert one.edges == other.edges
    assert [one.op_name(op) for op in range(3)] == [other.op_name(op) for op in range(3)]
    for column in ("kind", "rank", "resource", "work_ns", "size_bytes", "priority", "gang", "step"):
        assert getattr(one.ops, column).tolist() == getattr(other.ops, column).tolist()
    assert {other.strings[i] for i in other.ops.layer.tolist()} == {"conv"}


def test_columns_that_do_not_fit_are_refused_and_leave_no_half_rows():
    b = GraphBuilder()
    b.rank()
    name = np.full(2, b.string("a"))
    with pytest.raises(UsageError, match="priority cannot be 1099511627776"):
        b.ops(name, rank=0, work_ns=1, priority=np.array([0, 1 << 40]))
    with pytest.raises(UsageError, match="3 values of work_ns for 2 rows"):
        b.ops(name, rank=0, work_ns=np.array([1, 2, 3]))
    b.ops(name, rank=0, work_ns=1)
    with pytest.raises(UsageError, match="2 values of src for 1 rows"):
        b.edges(np.array([0, 0]), np.array([1]))
    assert b.build().num_ops == 2
    assert not len(b.build().edges.dst)
