"""Several windows in a row equal the unrolled graph, which the kernel does not copy."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.recorded_graphs import RATED_STYLES, recorded
from hypothesis import given
from hypothesis import strategies as st

from augury.build.synthetic.training_run import SCHEMES, SyntheticJob, synthesize
from augury.core.graph.graph import Carries, Graph
from augury.replay import kernel, reference
from augury.replay.critical_path import critical_path, walk_back_in_python
from augury.replay.kernel import Replayer
from augury.replay.unroll import unroll
from tests.campaigns import campaign

from .strategies import COARSE, graphs, symmetric_graphs

some = campaign(200)
windows = st.integers(1, 5)


def assert_same_as_unrolled(graph: Graph, num_windows: int) -> None:
    op_times = kernel.simulate(graph, num_windows)
    unrolled = unroll(graph, num_windows)
    assert op_times.same_as(kernel.simulate(unrolled))
    if not op_times.is_complete:
        return
    path = critical_path(graph, op_times)
    assert path == critical_path(unrolled, op_times)
    assert path == walk_back_in_python(graph, op_times, int(path.op[-1]), 0)


def with_any_carries(data: st.DataObject, graph: Graph) -> Graph:
    op = st.integers(0, graph.num_ops - 1)
    pairs = np.array(data.draw(st.lists(st.tuples(op, op), min_size=1, max_size=8)), np.int32)
    return graph.evolve(carries=Carries(src=pairs[:, 0], dst=pairs[:, 1]))


@some
@given(graphs(gangs=True, servers=True, extras=True, may_deadlock=True), windows)
def test_of_any_graph(graph: Graph, num_windows: int):
    assert_same_as_unrolled(graph, num_windows)


@some
@given(graphs(gangs=True, shared=True, interference=True, extras=True), windows)
def test_of_any_graph_with_links_and_interference(graph: Graph, num_windows: int):
    assert_same_as_unrolled(graph, num_windows)


@some
@given(symmetric_graphs(max_classes=3, works=COARSE, extras=True), windows)
def test_where_the_kernel_looks_ahead(graph: Graph, num_windows: int):
    assert_same_as_unrolled(graph, num_windows)


@campaign(300)
@given(st.data(), graphs(gangs=True), windows)
def test_whatever_is_carried(data: st.DataObject, graph: Graph, num_windows: int):
    assert_same_as_unrolled(with_any_carries(data, graph), num_windows)


@some
@given(st.data(), symmetric_graphs(works=COARSE), windows)
def test_whatever_is_carried_where_the_kernel_looks_ahead(
    data: st.DataObject, graph: Graph, num_windows: int
):
    assert_same_as_unrolled(with_any_carries(data, graph), num_windows)


@pytest.mark.parametrize("has_barrier", [True, False])
@pytest.mark.parametrize("algorithm", SCHEMES)
def test_of_made_up_jobs(algorithm: str, has_barrier: bool):
    graph = synthesize(SyntheticJob(algorithm=algorithm, has_barrier=has_barrier, jitter=0.05))
    assert_same_as_unrolled(graph, 3)


@pytest.mark.parametrize("style", RATED_STYLES)
def test_of_recorded_runs(style: str):
    graph = recorded(style, 2_000, num_ranks=4, is_loop=True)
    assert_same_as_unrolled(graph, 3)
    assert reference.simulate(graph, 3).same_as(kernel.simulate(graph, 3))


def test_a_replayer_goes_through_them_with_other_durations():
    graph = recorded("threads", 1_000, num_ranks=2, is_loop=True)
    work_ns = graph.ops.work_ns * 2
    doubled = kernel.simulate(graph.with_work_ns(work_ns), 4)
    assert Replayer(graph, 4).simulate(work_ns).same_as(doubled)
