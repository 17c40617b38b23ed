"""Editing a graph, against a model that knows operations by name."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from augury.core.enums import OpKind
from augury.core.graph.builder import GraphBuilder
from augury.core.graph.graph import NONE, Graph
from augury.core.string_table import StringTable
from augury.passes.graph_edit import GraphEdit


def edges_of(graph: Graph) -> set[tuple[str, str]]:
    return {
        (graph.op_name(int(src)), graph.op_name(int(dst)))
        for src, dst in zip(graph.edges.sources(), graph.edges.dst, strict=True)
    }


def gangs_of(graph: Graph) -> set[frozenset[str]]:
    return {
        frozenset(graph.op_name(op) for op in graph.gang_members.of(gang).tolist())
        for gang in range(graph.num_gangs)
    }


@given(st.data())
def test_agrees_with_a_model_of_names(data: st.DataObject) -> None:
    draw = data.draw
    num_ops = draw(st.integers(1, 8))
    builder = GraphBuilder()
    ranks = [builder.rank() for _ in range(2)]
    names = [f"op{i}" for i in range(num_ops)]
    edges: set[tuple[str, str]] = set()
    gangs: dict[int, set[str]] = {}
    buffers: list[tuple[str, str]] = []
    gradients: list[tuple[str, str, str]] = []
    carries: list[tuple[str, str]] = []
    any_op = st.integers(0, num_ops - 1)
    for i, name in enumerate(names):
        before = sorted(draw(st.sets(st.integers(0, i - 1), max_size=3))) if i else []
        edges |= {(names[b], name) for b in before}
        builder.op(name, rank=ranks[0], work_ns=i, after=before)
    for rank in ranks:  # a rank has operations
        builder.op(f"stays{rank}", rank=rank, work_ns=1)
    for _ in range(draw(st.integers(0, 3))):
        a, b, c = draw(any_op), draw(any_op), draw(any_op)
        builder.buffer(7, rank=ranks[0], taken_by=a, given_by=b)
        buffers.append((names[a], names[b]))
        builder.gradient("g", rank=ranks[0], size_bytes=3, made_by=a, carried_by=b, used_by=c)
        gradients.append((names[a], names[b], names[c]))
        builder.carry(a, b)
        carries.append((names[a], names[b]))
    graph = builder.build()
    edit = GraphEdit(graph)
    gone = draw(st.sets(any_op, max_size=num_ops))
    for op in gone:
        edit.remove(op)
    ids = {name: i for i, name in enumerate(names)}
    for k in range(draw(st.integers(0, 4))):
        name = f"new{k}"
        before = draw(st.sets(st.sampled_from(sorted(ids)), max_size=2))
        pair = edit.gang() if draw(st.booleans()) else NONE
        ids[name] = edit.op(
            name,
            kind=OpKind.ALL_REDUCE,
            rank=0,
            resource=NONE,
            work_ns=5,
            step=0,
            gang=pair,
            after=[ids[b] for b in sorted(before)],
        )
        edges |= {(b, name) for b in before}
        if pair != NONE:
            gangs[pair] = {name}
    changed = edit.graph()
    left = {name for name, op in ids.items() if op not in gone} | {"stays0", "stays1"}

    def kept(rows):
        return [row for row in rows if set(row) <= left]

    def named(*columns):
        return [tuple(changed.op_name(int(op)) for op in row) for row in zip(*columns, strict=True)]

    assert {changed.op_name(op) for op in range(changed.num_ops)} == left
    assert changed.num_ops == len(left)
    assert edges_of(changed) == set(kept(edges))
    assert gangs_of(changed) == {frozenset(own) for own in gangs.values()}
    assert named(changed.buffers.taken_by, changed.buffers.given_by) == kept(buffers)
    table = changed.gradients
    assert named(table.made_by, table.carried_by, table.used_by) == kept(gradients)
    assert named(changed.carries.src, changed.carries.dst) == kept(carries)
    for op in range(changed.num_ops):
        if changed.op_name(op).startswith("op"):
            assert changed.ops.work_ns[op] == int(changed.op_name(op)[2:])


def test_nothing_changed_is_the_same_graph() -> None:
    builder = GraphBuilder()
    rank = builder.rank(host="here")
    builder.op("a", rank=rank, work_ns=1, after=[])
    graph = builder.build()
    assert GraphEdit(graph).graph() == graph


def test_strings_that_stand_twice_keep_their_numbers() -> None:
    builder = GraphBuilder()
    rank = builder.rank(host="a")
    builder.op("b", rank=rank, work_ns=1)
    graph = builder.build().evolve(strings=StringTable.of(["a", "a", "b"]))
    columns = dict(graph.ops.columns()) | {"name": np.array([2])}
    edit = GraphEdit(graph.evolve(ops=type(graph.ops)(**columns)))
    edit.op("c", kind=OpKind.OTHER, rank=0, resource=NONE, work_ns=1, step=0)
    changed = edit.graph()
    assert [changed.op_name(op) for op in range(2)] == ["b", "c"]


def test_first_ranks_take_what_is_theirs() -> None:
    builder = GraphBuilder()
    ops = []
    for _ in range(3):
        rank = builder.rank()
        compute, stream = builder.resource("c", rank=rank), builder.resource("s", rank=rank)
        builder.interfere(victim=compute, aggressor=stream, rate=0.5)
        ops.append(builder.op("op", rank=rank, resource=compute, work_ns=5))
        builder.buffer(9, rank=rank)
        builder.measured_step(rank=rank, step=0, dur_ns=5, explained_ns=5)
    edit = GraphEdit(builder.build())
    edit.remove(ops[2])
    changed = edit.graph(num_ranks=2)
    assert changed.num_ranks == 2
    assert len(changed.interference) == len(changed.buffers) == len(changed.measured) == 2
