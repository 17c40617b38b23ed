"""Overhead of a replay besides the kernel: counted, not timed."""

from __future__ import annotations

import tracemalloc

import pytest
from benchmarks.graphs import training
from benchmarks.recorded_graphs import RATED_STYLES, recorded

from augury.core.graph.builder import GraphBuilder
from augury.core.graph.graph import Graph
from augury.replay import kernel, peak_memory, run, steady_state
from augury.replay.fold import may_pay
from augury.replay.op_times import OpTimes
from augury.replay.run import replay

NUM_WINDOWS = 4
BYTES_OF_RESULT = NUM_WINDOWS * (8 + 8 + 4)
"""Per operation: starts, ends and causes of all windows."""
MOST_BYTES_BESIDE = 100
"""Per operation: a dozen columns of one window at a time."""


def _graph(style: str, num_ops: int) -> Graph:
    if style in RATED_STYLES:
        return recorded(style, num_ops, is_loop=True)
    return training(style, num_ops)


every_style = pytest.mark.parametrize("style", ["buckets", "ring", *RATED_STYLES])


@every_style
def test_a_steady_state_simulates_windows_of_the_graph_without_copying_it(
    style: str, monkeypatch: pytest.MonkeyPatch
):
    asked: list[tuple[Graph, int]] = []

    def simulate(graph: Graph, num_windows: int = 1) -> OpTimes:
        asked.append((graph, num_windows))
        return kernel.simulate(graph, num_windows)

    def refuse(*_: object) -> None:
        raise AssertionError("the graph is copied")

    graph = _graph(style, 4_000)
    monkeypatch.setattr(run, "find_engine", lambda _: simulate)
    for module in (run, steady_state, peak_memory):
        monkeypatch.setattr(module, "unroll", refuse)
    replay(graph)
    assert all(replayed is graph for replayed, _ in asked)
    # Twice as many windows each time, until their ends recur.
    assert [number for _, number in asked] == [NUM_WINDOWS << i for i in range(len(asked))]


@every_style
def test_memory_of_a_replay_is_that_of_its_result_and_a_few_columns(style: str):
    for num_ops in (8_000, 64_000):
        graph = _graph(style, num_ops)
        replay(graph.evolve())  # imports are not part of it
        tracemalloc.start()
        try:
            replay(graph.evolve())
            _, peak_bytes = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak_bytes / graph.num_ops < BYTES_OF_RESULT + MOST_BYTES_BESIDE


def test_classes_are_not_looked_for_where_ranks_do_different_amounts(
    monkeypatch: pytest.MonkeyPatch,
):
    graph = recorded("threads", 2_000, is_loop=True)
    assert not may_pay(graph)
    monkeypatch.setattr(run, "fold_ranks", lambda _: pytest.fail("classes were looked for"))
    replay(graph)


@pytest.mark.parametrize(("num_kinds", "pays"), [(1, True), (4, True), (5, False), (8, False)])
def test_classes_are_looked_for_where_half_of_the_ranks_may_be_left_out(num_kinds: int, pays: bool):
    builder = GraphBuilder()
    for number in range(8):
        builder.op("op", rank=builder.rank(), work_ns=10 + number % num_kinds)
    assert may_pay(builder.build()) is pays
