"""Every rule: an invalid graph gives the rule's slug and a message that names the item."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from augury.core.enums import OpKind, Role
from augury.core.errors import GraphError
from augury.core.graph.builder import GraphBuilder
from augury.core.graph.graph import RATE_ONE, Carries, Edges, Graph
from augury.core.graph.graph_spec import MAX_TOTAL_WORK_NS, MAX_WORK_NS, check, verify
from augury.core.graph.table_rules import MAX_SHARED_WIDTH, Violation
from augury.core.string_table import StringTable
from tests.campaigns import campaign
from tests.engines.strategies import graphs, symmetric_graphs


def _valid() -> Graph:
    """A little of everything: operations 0 to 3, gang 0 is (1, 2), resources 0 to 2."""
    b = GraphBuilder()
    b.rank(host="alpha")
    b.rank(host="beta")
    b.rank(role=Role.SERVER, host="gamma")
    streams = [b.resource("stream", rank=rank) for rank in range(2)]
    link = b.shared_resource("link", capacity=1.0)
    b.interfere(victim=streams[0], aggressor=link, rate=0.5)
    gang = b.gang()
    b.op("forward", kind=OpKind.FORWARD, rank=0, resource=streams[0], work_ns=5, layer="conv")
    for rank in range(2):
        b.op(
            "reduce",
            kind=OpKind.ALL_REDUCE,
            rank=rank,
            resource=link,
            work_ns=7,
            size_bytes=64,
            gang=gang,
            after=[0],
        )
    b.op("update", kind=OpKind.UPDATE, rank=1, resource=streams[1], work_ns=2, after=[2])
    b.carry(3, 0)
    b.gradient("w", rank=0, size_bytes=4, made_by=0, carried_by=1, used_by=3)
    b.buffer(100, rank=0, taken_by=0, given_by=1, layer="conv")
    b.buffer(200, rank=1, taken_by=2, given_by=3)
    b.measured_step(rank=0, step=0, dur_ns=20, explained_ns=15)
    return b.build()


def _with(table: str, **cells: dict[int, int]) -> Callable[[Graph], Graph]:
    """Writes single cells: ``_with("ops", rank={2: 9})``."""

    def change(graph: Graph) -> Graph:
        old = getattr(graph, table)
        columns = {name: values.copy() for name, values in old.columns()}
        for name, values in cells.items():
            for row, value in values.items():
                columns[name][row] = value
        return graph.evolve(**{table: type(old)(**columns)})

    return change


def _with_pairs(*pairs: tuple[int, int]) -> Callable[[Graph], Graph]:
    src, dst = np.array(pairs, dtype=np.int32).T
    return lambda graph: graph.evolve(edges=Edges.from_pairs(src, dst, num_ops=graph.num_ops))


def _shorter(table: str, column: str) -> Callable[[Graph], Graph]:
    def change(graph: Graph) -> Graph:
        old = getattr(graph, table)
        columns: dict[str, Any] = dict(old.columns())
        columns[column] = columns[column][:-1]
        return graph.evolve(**{table: type(old)(**columns)})

    return change


def _with_edges(first: list[int], dst: list[int]) -> Callable[[Graph], Graph]:
    return lambda graph: graph.evolve(edges=Edges(first=first, dst=dst))


def _with_strings(blob: bytes, ends: list[int]) -> Callable[[Graph], Graph]:
    table = StringTable(blob, np.array(ends, dtype=np.int64))
    return lambda graph: graph.evolve(strings=table)


def _twice_in_a_gang(graph: Graph) -> Graph:
    return _with("ops", rank={2: 0}, resource={2: 0, 1: 0})(
        graph.evolve(buffers=graph.buffers.empty())
    )


def test_a_valid_graph_has_no_problems():
    assert check(_valid()) == []
    verify(_valid())


def test_edges_rise_within_an_operation_only():
    assert check(_with_edges([0, 2, 3, 4, 4], [1, 3, 2, 3])(_valid())) == []
    assert check(_with_edges([0, 0, 2, 3, 3], [3, 3, 3])(_valid())) == []
    assert check(_with_edges([0, 0, 0, 0, 0], [])(_valid())) == []


def test_a_graph_out_of_order_is_valid():
    # Gang members may also be a sender and its receiver, which differ in kind.
    graph = _with("ops", kind={1: OpKind.SEND, 2: OpKind.RECV})(_valid())
    assert check(_with_pairs((3, 0), (2, 1), (3, 2))(graph)) == []


_BROKEN: list[tuple[str, str, Callable[[Graph], Graph]]] = [
    ("shape", "'ops' differ in length", _shorter("ops", "work_ns")),
    ("shape", "'carries' differ in length", _shorter("carries", "dst")),
    ("shape", "'resources' differ in length", _shorter("resources", "width")),
    ("shape", "'interference' differ in length", _shorter("interference", "rate")),
    ("shape", "'buffers' differ in length", _shorter("buffers", "layer")),
    ("shape", "'gradients' differ in length", _shorter("gradients", "name")),
    ("shape", "'ranks' differ in length", _shorter("ranks", "host")),
    ("shape", "'measured' differ in length", _shorter("measured", "step")),
    ("shape", "edge index", _with_edges([], [])),
    ("shape", "edge index", _with_edges([0, 0, 0, 0], [])),
    ("shape", "edge index", _with_edges([1, 1, 1, 1, 1], [0])),
    ("shape", "edge index", _with_edges([0, 0, 0, 0, 2], [1])),
    ("shape", "edge index", _with_edges([0, 2, 1, 1, 2], [1, 2])),
    ("shape", "string index", _with_strings(b"abc", [-1, 3])),
    ("shape", "string index", _with_strings(b"abc", [2, 1, 3])),
    ("shape", "string index", _with_strings(b"abc", [1, 2])),
    ("unknown-role", "rank 1 has the unknown role 7", _with("ranks", role={1: 7})),
    ("unknown-rank", "operation 2 belongs to rank 3 of 3", _with("ops", rank={2: 3})),
    ("unknown-rank", "operation 2 belongs to rank -1", _with("ops", rank={2: -1})),
    ("unknown-rank", "resource 1 belongs to rank 3 of 3", _with("resources", rank={1: 3})),
    ("unknown-rank", "resource 1 belongs to rank -2", _with("resources", rank={1: -2})),
    ("unknown-rank", "buffer 0 belongs to rank -1", _with("buffers", rank={0: -1})),
    ("unknown-rank", "gradient 0 belongs to rank 7", _with("gradients", rank={0: 7})),
    ("unknown-rank", "a measured step belongs to rank 5", _with("measured", rank={0: 5})),
    ("unknown-string", "operation 3 names string 99", _with("ops", name={3: 99})),
    ("unknown-string", "operation 3 names string -1", _with("ops", name={3: -1})),
    ("unknown-string", "operation 0 names string -2", _with("ops", layer={0: -2})),
    ("unknown-string", "resource 2 names string 99", _with("resources", name={2: 99})),
    ("unknown-string", "buffer 1 names string 99", _with("buffers", layer={1: 99})),
    ("unknown-string", "gradient 0 names string -1", _with("gradients", name={0: -1})),
    ("unknown-string", "rank 0 names string -1", _with("ranks", host={0: -1})),
    ("dangling-edge", "from operation 0 to 4", _with_pairs((0, 4))),
    ("dangling-edge", "from operation 0 to -1", _with_pairs((0, -1))),
    ("cycle", "operation 2 waits for itself", _with_pairs((0, 1), (2, 2))),
    ("edge-order", "edges of operation 1", _with_edges([0, 1, 3, 3, 3], [3, 3, 2])),
    ("dangling-edge", "carried edge leads from operation 4 to 0", _with("carries", src={0: 4})),
    ("dangling-edge", "carried edge leads from operation 3 to -1", _with("carries", dst={0: -1})),
    ("unknown-resource", "operation 1 runs on resource 3 of 3", _with("ops", resource={1: 3})),
    ("unknown-resource", "operation 1 runs on resource -2", _with("ops", resource={1: -2})),
    ("unknown-kind", "resource 0 has an unknown kind", _with("resources", kind={0: 77})),
    ("unknown-kind", "resource 1 has an unknown kind", _with("resources", discipline={1: 2})),
    ("bad-resource", "resource 0 has width 0", _with("resources", width={0: 0})),
    ("bad-resource", "capacity -1", _with("resources", capacity={2: -1})),
    (
        "bad-resource",
        f"resource 2 has width {MAX_SHARED_WIDTH + 1}",
        _with("resources", width={2: MAX_SHARED_WIDTH + 1}),
    ),
    (
        "unknown-resource",
        "interference 0 is between resources 9 and 2",
        _with("interference", victim={0: 9}),
    ),
    (
        "unknown-resource",
        "interference 0 is between resources 0 and -1",
        _with("interference", aggressor={0: -1}),
    ),
    ("bad-interference", "slows resource 0 to 0.0000", _with("interference", rate={0: 0})),
    ("bad-interference", "to 2.0000", _with("interference", rate={0: 2 * RATE_ONE})),
    ("bad-interference", "by another resource", _with("interference", aggressor={0: 0})),
    ("unknown-kind", "buffer 0 has the unknown kind 50", _with("buffers", kind={0: 50})),
    ("dangling-buffer", "buffer 0 is taken by operation 4", _with("buffers", taken_by={0: 4})),
    ("dangling-buffer", "given back by -2", _with("buffers", given_by={0: -2})),
    ("negative-size", "buffer 1 has -5 bytes", _with("buffers", size_bytes={1: -5})),
    ("dangling-gradient", "gradient 0 is made by operation 4", _with("gradients", made_by={0: 4})),
    ("dangling-gradient", "carried by -1", _with("gradients", carried_by={0: -1})),
    ("dangling-gradient", "used by 9,", _with("gradients", used_by={0: 9})),
    ("negative-size", "gradient 0 has -5 bytes", _with("gradients", size_bytes={0: -5})),
    ("unknown-kind", "operation 3 has the unknown kind 200", _with("ops", kind={3: 200})),
    ("negative-time", "operation 3 takes -1 ns", _with("ops", work_ns={3: -1})),
    (
        "excessive-time",
        f"operation 3 takes {MAX_WORK_NS + 1} ns, more than",
        _with("ops", work_ns={3: MAX_WORK_NS + 1}),
    ),
    (
        "excessive-size",
        "the buffers of rank 1 add up to more than 2^62 bytes",
        _with("buffers", size_bytes={1: 5 << 60}),
    ),
    ("bad-buffer", "buffer 0 is given back 7 windows later", _with("buffers", later={0: 7})),
    ("negative-size", "operation 0 moves -1 bytes", _with("ops", size_bytes={0: -1})),
    ("bad-step", "operation 0 is in step -2", _with("ops", step={0: -2})),
    ("bad-measurement", "step 0 of rank 0", _with("measured", dur_ns={0: 0})),
    ("bad-measurement", "-1 ns of it explained", _with("measured", explained_ns={0: -1})),
    ("bad-measurement", "step -1 of rank 0", _with("measured", step={0: -1})),
    ("bad-gang", "operation 1 is in gang 4", _with("ops", gang={1: 4})),
    ("bad-gang", "operation 1 is in gang -2", _with("ops", gang={1: -2})),
    (
        "foreign-resource",
        "'forward' (forward, rank 0, op 0) runs on 'stream' of rank 1",
        _with("ops", resource={0: 1}),
    ),
    (
        "foreign-buffer",
        "buffer 0 of rank 0 is handled by 'update' (update, rank 1, op 3)",
        _with("buffers", taken_by={0: 3}),
    ),
    ("foreign-buffer", "'reduce' (all_reduce, rank 1, op 2)", _with("buffers", given_by={0: 2})),
    (
        "gang-disagrees",
        "'reduce' (all_reduce, rank 0, op 1) calls all_reduce,"
        " 'reduce' (all_gather, rank 1, op 2) calls all_gather",
        _with("ops", kind={2: OpKind.ALL_GATHER}),
    ),
    (
        "gang-disagrees",
        "op 1) calls send, 'reduce' (barrier, rank 1, op 2) calls barrier",
        _with("ops", kind={1: OpKind.SEND, 2: OpKind.BARRIER}),
    ),
    ("gang-disagrees", "op 1) brings 64 B", _with("ops", size_bytes={2: 65})),
    ("gang-disagrees", "op 2) needs 9 ns", _with("ops", work_ns={2: 9})),
    ("gang-disagrees", "gang 0 has rank 0 twice", _twice_in_a_gang),
    (
        "no-steps",
        "rank 0 has no operation that belongs to a step",
        _with("ops", step={0: -1, 1: -1}),
    ),
    (
        "cycle",
        "op 2) -> 'forward' (forward, rank 0, op 0) -> op 2 is a cycle",
        _with_pairs((0, 2), (2, 0)),
    ),
]


@pytest.mark.parametrize(
    ("rule", "words", "break_it"),
    _BROKEN,
    ids=[f"{rule}-{i}" for i, (rule, *_) in enumerate(_BROKEN)],
)
def test_a_broken_graph_is_told_by_rule_and_culprit(
    rule: str, words: str, break_it: Callable[[Graph], Graph]
):
    problems = check(break_it(_valid()))
    assert rule in {problem.rule for problem in problems}
    assert any(words in problem.message for problem in problems if problem.rule == rule), problems


def test_no_operations():
    graph = _valid()
    empty = graph.evolve(
        ops=graph.ops.empty(),
        edges=Edges(first=[0], dst=[]),
        carries=Carries.empty(),
        buffers=graph.buffers.empty(),
        gradients=graph.gradients.empty(),
    )
    assert check(empty) == [Violation("empty", "it has no operations")]


def test_all_operations_together_may_not_take_forever():
    b = GraphBuilder()
    b.rank()
    for _ in range(MAX_TOTAL_WORK_NS // MAX_WORK_NS + 1):
        b.op("long", rank=0, work_ns=MAX_WORK_NS)
    with pytest.raises(GraphError, match="52 days"):
        b.build()


def _slowed(work_ns: int, *, capacity: float, rules: int) -> Graph:
    b = GraphBuilder()
    b.rank()
    b.rank()
    link = b.shared_resource("link", rank=0, capacity=capacity)
    for _ in range(rules):
        b.interfere(victim=link, aggressor=b.resource("other"), rate=1 / 1024)
    gang = b.gang()
    b.op("short", rank=0, resource=link, work_ns=work_ns, gang=gang)
    b.op("long", rank=1, work_ns=work_ns, gang=gang)
    return b.build()


@pytest.mark.parametrize(
    ("work_ns", "capacity", "rules"), [(1 << 40, 1e-6, 0), (1 << 40, 1, 2), (1 << 42, 0.5, 9)]
)
def test_what_is_slowed_may_not_outrun_the_clock(work_ns: int, capacity: float, rules: int):
    # Otherwise a small file could make 64 bits overflow, and times come out negative.
    with pytest.raises(GraphError, match="more than 36 years, 'short'"):
        _slowed(work_ns, capacity=capacity, rules=rules)


def test_slow_is_fine_as_long_as_the_clock_can_count_it():
    assert _slowed(1 << 20, capacity=1e-6, rules=9)
    assert _slowed(1 << 42, capacity=0.5, rules=1)


def test_a_server_needs_no_step():
    b = GraphBuilder()
    b.rank()
    b.rank(role=Role.SERVER)
    b.op("work", rank=0, work_ns=1, step=3)
    b.op("sum", rank=1, work_ns=1, step=-1)
    assert check(b.build()) == []


def test_a_long_cycle_is_cut_short_in_words():
    b = GraphBuilder()
    b.rank()
    for i in range(9):
        b.op(f"op{i}", rank=0, work_ns=1)
        b.edge(i, (i + 1) % 9)
    with pytest.raises(GraphError, match=r"\.\.\. 3 more \.\.\.") as caught:
        b.build()
    assert caught.value.cause.endswith("is a cycle")


def test_a_rule_tells_the_first_and_counts_the_rest():
    graph = _with("ops", work_ns={0: -4, 3: -5})(_valid())
    assert check(graph) == [Violation("negative-time", "operation 0 takes -4 ns", 2)]
    with pytest.raises(GraphError, match=r"takes -4 ns \(and 1 more like it\)$"):
        verify(graph)


def test_verify_tells_three_kinds_and_counts_the_others():
    graph = _with("ops", work_ns={0: -1}, step={0: -2}, gang={0: -2}, size_bytes={0: -1})(_valid())
    with pytest.raises(GraphError, match=r"; and 1 other kind of problem$") as caught:
        verify(graph)
    assert caught.value.cause.count(";") == 3
    assert "docs/graph.md" in caught.value.remedy


def test_later_rules_wait_for_earlier_ones():
    # With a rank out of range, ownership cannot be checked.
    graph = _with("ops", rank={0: 9}, resource={0: 1})(_valid())
    assert {problem.rule for problem in check(graph)} == {"unknown-rank"}


@settings(max_examples=60)
@given(
    st.one_of(
        graphs(),
        graphs(gangs=True, may_deadlock=True, servers=True),
        graphs(gangs=True, straggler=True, shared=True, interference=True, extras=True),
        symmetric_graphs(max_classes=3, shared=True, extras=True),
    )
)
def test_random_graphs_are_valid(graph: Graph):
    assert check(graph) == []


_COLUMNS = [
    (table, name)
    for table in ("ops", "edges", "carries", "resources", "interference", "buffers", "ranks")
    for name, _ in getattr(_valid(), table).schema()
]


@campaign(300)
@given(
    st.sampled_from(_COLUMNS),
    st.integers(0, 3),
    st.sampled_from((-(1 << 31), -2, -1, 0, 1, 2, 3, 4, 5, 127, 255, 1 << 20, (1 << 31) - 1)),
)
def test_no_value_in_any_cell_makes_the_specification_itself_fail(
    column: tuple[str, str], row: int, value: int
):
    table, name = column
    graph = _valid()
    values = getattr(getattr(graph, table), name)
    if values.dtype == np.uint8:
        value %= 256
    for problem in check(_with(table, **{name: {row % len(values): value}})(graph)):
        assert problem.message
