"""Several windows in a row, against the same windows built by hand."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from augury.core.enums import MemoryKind, OpKind
from augury.core.errors import GraphError
from augury.core.graph.builder import GraphBuilder
from augury.core.graph.graph import NONE, Graph
from augury.core.graph.graph_spec import check
from augury.replay import kernel
from augury.replay.unroll import unroll
from tests.campaigns import campaign
from tests.engines.strategies import graphs, symmetric_graphs

FORWARD, WAIT, REDUCE, UPDATE = range(4)
"""What each of two ranks does in a window; the update belongs to the step after."""


def _by_hand(times: int, *, is_carried: bool = True) -> Graph:
    b = GraphBuilder(meta={"made": "by hand"})
    streams = [b.resource("stream", rank=b.rank()) for _ in range(2)]
    ops = [_add_window(b, streams, copy) for copy in range(times)]
    if is_carried:
        for copy in range(times - 1):
            for rank in range(2):
                b.edge(ops[copy][rank][UPDATE], ops[copy + 1][rank][FORWARD])
        for rank in range(2):
            b.carry(ops[-1][rank][UPDATE], ops[0][rank][FORWARD])
    b.buffer(1_000, rank=0, kind=MemoryKind.PARAMETER, layer="l")
    b.buffer(9, rank=0, given_by=ops[0][0][FORWARD])
    for copy in range(times):
        own = ops[copy][1]
        b.buffer(100, rank=1, taken_by=own[FORWARD], given_by=own[UPDATE], layer="l")
        b.buffer(7, rank=1, taken_by=own[REDUCE])
        if copy + 1 < times:
            b.buffer(50, rank=1, taken_by=own[REDUCE], given_by=ops[copy + 1][1][FORWARD])
        else:
            first = ops[0][1][FORWARD]
            b.buffer(50, rank=1, taken_by=own[REDUCE], given_by=first, later=True)
    b.measured_step(rank=0, step=3, dur_ns=40, explained_ns=30)
    return b.build()


def _add_window(b: GraphBuilder, streams: list[int], copy: int) -> list[list[int]]:
    step = 3 + 2 * copy
    gang = b.gang()
    window = []
    for rank, stream in enumerate(streams):
        forward = b.op(
            "forward", kind=OpKind.FORWARD, rank=rank, resource=stream, work_ns=5 + rank, step=step
        )
        wait = b.op("wait", rank=rank, work_ns=2, step=NONE, after=[forward])
        reduce = b.op(
            "reduce", kind=OpKind.ALL_REDUCE, rank=rank, work_ns=9, gang=gang, step=step,
            after=[forward, wait], size_bytes=64, priority=1,
        )  # fmt: skip
        update = b.op(
            "update",
            rank=rank,
            resource=stream,
            work_ns=1,
            step=step + 1,
            after=[reduce],
            layer="l",
        )
        window.append([forward, wait, reduce, update])
    return window


@pytest.mark.parametrize("times", [2, 3, 7])
@pytest.mark.parametrize("is_carried", [True, False])
def test_is_what_one_would_build_by_hand(times: int, is_carried: bool):
    graph = _by_hand(1, is_carried=is_carried)
    unrolled = unroll(graph, times)
    assert unrolled == _by_hand(times, is_carried=is_carried)
    assert unrolled.num_steps == 2 * times
    assert sorted(set(unrolled.ops.step.tolist()) - {NONE}) == list(range(3, 3 + 2 * times))


def test_once_is_the_graph_itself():
    graph = _by_hand(1)
    assert unroll(graph, 1) is graph


def test_windows_of_windows():
    graph = _by_hand(1)
    assert unroll(unroll(graph, 2), 3) == unroll(unroll(graph, 3), 2) == unroll(graph, 6)


@campaign(100)
@given(graphs(gangs=True, servers=True, shared=True, extras=True))
def test_windows_of_windows_of_any_graph(graph: Graph):
    at_once, in_turn = unroll(graph, 6), unroll(unroll(graph, 2), 3)
    assert check(at_once) == []
    assert in_turn == at_once
    assert kernel.simulate(in_turn).same_as(kernel.simulate(at_once))


@settings(max_examples=60)
@given(symmetric_graphs(max_classes=2, extras=True))
def test_the_first_window_does_not_know_of_those_that_follow(graph: Graph):
    """Where each rank's first operation waits for its last of the window before."""
    unrolled = unroll(graph, 3)
    assert check(unrolled) == []
    for name in ("src", "dst"):
        carried = getattr(unrolled.carries, name)
        expected = getattr(graph.carries, name) + (2 * graph.num_ops if name == "src" else 0)
        assert carried.tolist() == expected.tolist()
    assert len(unrolled.edges.dst) == 3 * len(graph.edges.dst) + 2 * len(graph.carries)


def test_without_steps_none_appear():
    b = GraphBuilder()
    b.rank()
    server = b.rank(role=1)
    b.op("train", rank=0, work_ns=1)
    b.op("serve", rank=server, work_ns=1, step=NONE)
    assert unroll(b.build(), 3).ops.step.tolist() == [0, NONE, 1, NONE, 2, NONE]


def test_step_numbers_go_on_where_they_are():
    b = GraphBuilder()
    rank = b.rank()
    for step in (1_000_000_000, 1_000_000_001):
        b.op("op", rank=rank, work_ns=1, step=step)
    assert unroll(b.build(), 2).ops.step.tolist() == list(range(10**9, 10**9 + 4))


def test_step_numbers_that_cannot_go_on_are_refused():
    b = GraphBuilder()
    rank = b.rank()
    for step in (0, 2**31 - 1):
        b.op("op", rank=rank, work_ns=1, step=step)
    with pytest.raises(GraphError, match="too large") as caught:
        unroll(b.build(), 2)
    assert "from 0" in caught.value.remedy


def test_a_window_all_outside_of_steps():
    b = GraphBuilder()
    server = b.rank(role=1)
    b.op("serve", rank=server, work_ns=1, step=NONE)
    assert unroll(b.build(), 2).ops.step.tolist() == [NONE, NONE]
