"""Utilization and times of steps equal a count of every nanosecond."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from augury.core.graph.builder import GraphBuilder
from augury.core.graph.graph import NONE, Graph, Ops
from augury.core.timeline import ResourceUtilization
from augury.replay import kernel, reference
from augury.replay.op_times import OpTimes
from augury.replay.utilization import progress_start_ns, rank_steps, resource_utilization
from tests.campaigns import campaign
from tests.engines.strategies import COARSE, graphs

some = campaign(100)


def _counted(graph: Graph, op_times: OpTimes, horizon_ns: int) -> ResourceUtilization:
    """Nanosecond by nanosecond."""
    rows = []
    for resource in range(len(graph.resources)):
        ops = np.flatnonzero(graph.ops.resource == resource)
        is_held = np.zeros(horizon_ns, dtype=bool)
        is_busy = np.zeros(horizon_ns, dtype=bool)
        for op in ops:
            start_ns, end_ns, gang = op_times.start_ns[op], op_times.end_ns[op], graph.ops.gang[op]
            began_ns = start_ns
            if gang != NONE:
                began_ns = max(op_times.start_ns[peer] for peer in graph.gang_members.of(gang))
            is_held[start_ns:end_ns] = True
            is_busy[began_ns:end_ns] = True
        rows.append(
            (is_busy.sum(), (is_held & ~is_busy).sum(), (~is_held & ~is_busy).sum(), len(ops))
        )
    columns = np.array(rows).reshape(-1, 4).T
    return ResourceUtilization(
        busy_ns=columns[0], waiting_ns=columns[1], idle_ns=columns[2], num_ops=columns[3]
    )


@pytest.mark.parametrize(
    "flavour",
    [
        pytest.param(graphs(gangs=True), id="gangs"),
        pytest.param(graphs(gangs=True, works=COARSE, straggler=True), id="stragglers"),
        pytest.param(graphs(gangs=True, servers=True, shared=True), id="shared"),
    ],
)
@some
@given(data=st.data())
def test_every_nanosecond_is_busy_waiting_or_idle(
    flavour: st.SearchStrategy[Graph], data: st.DataObject
):
    graph = data.draw(flavour)
    op_times = kernel.simulate(graph)
    makespan_ns = int(op_times.end_ns.max())
    use = resource_utilization(graph, op_times, horizon_ns=makespan_ns)
    assert use == _counted(graph, op_times, makespan_ns)
    assert (use.busy_ns + use.waiting_ns + use.idle_ns == makespan_ns).all()


def test_a_gang_waits_with_its_place_held():
    b = GraphBuilder()
    gang = b.gang()
    for work_ns in (3, 8):
        rank = b.rank()
        comm = b.resource("comm", rank=rank)
        compute = b.op("compute", rank=rank, work_ns=work_ns)
        b.op("reduce", rank=rank, resource=comm, work_ns=10, gang=gang, after=[compute])
    graph = b.build()
    op_times = reference.simulate(graph)
    assert progress_start_ns(graph, op_times).tolist() == [0, 8, 0, 8]
    use = resource_utilization(graph, op_times, horizon_ns=20)
    assert use.busy_ns.tolist() == [10, 10]
    assert use.waiting_ns.tolist() == [5, 0]
    assert use.idle_ns.tolist() == [5, 10]


def test_where_two_run_at_once_time_counts_once():
    b = GraphBuilder()
    rank = b.rank()
    pool = b.resource("pool", rank=rank, width=2)
    for work_ns in (4, 10, 3, 1):
        b.op("op", rank=rank, resource=pool, work_ns=work_ns)
    last = b.op("wait", rank=rank, work_ns=5, after=[1])
    b.op("op", rank=rank, resource=pool, work_ns=2, after=[last])
    graph = b.build()
    # [0, 4) [0, 10) [4, 7) [7, 8) and, after a pause, [15, 17).
    use = resource_utilization(graph, reference.simulate(graph), horizon_ns=17)
    assert use.busy_ns.tolist() == [12]
    assert use.idle_ns.tolist() == [5]
    assert use.num_ops.tolist() == [5]


def test_an_unused_resource_is_idle():
    b = GraphBuilder()
    rank = b.rank()
    b.resource("narrow", rank=rank)
    b.resource("wide", rank=rank, width=3)
    b.op("op", rank=rank, work_ns=6)
    graph = b.build()
    use = resource_utilization(graph, reference.simulate(graph), horizon_ns=6)
    assert use.idle_ns.tolist() == [6, 6]
    assert use.num_ops.tolist() == [0, 0]


def test_long_times_on_many_wide_resources_do_not_overflow():
    b = GraphBuilder()
    rank = b.rank()
    pools = [b.resource("pool", rank=rank, width=2) for _ in range(4_000)]
    hour_ns = 1 << 42
    previous: list[int] = []
    for number in range(1_000):
        pool = pools[number % 2 * 3_000]
        previous = [b.op("op", rank=rank, resource=pool, work_ns=hour_ns, after=previous)]
    graph = b.build()
    use = resource_utilization(graph, reference.simulate(graph), horizon_ns=1_000 * hour_ns)
    assert use.busy_ns[[0, 3_000]].tolist() == [500 * hour_ns] * 2
    assert use.busy_ns.sum() == 1_000 * hour_ns


# -- steps ---------------------------------------------------------------------------------


@some
@given(graphs(gangs=True, servers=True), st.data())
def test_a_rank_is_in_a_step_from_its_first_start_to_its_last_end(
    graph: Graph, data: st.DataObject
):
    size = graph.num_ops
    step = data.draw(st.lists(st.sampled_from((NONE, 0, 1, 2, 7)), min_size=size, max_size=size))
    graph = graph.evolve(ops=Ops(**(dict(graph.ops.columns()) | {"step": np.array(step)})))
    op_times = kernel.simulate(graph)
    expected: dict[tuple[int, int], list[int]] = {}
    for op in range(size):
        if step[op] == NONE:
            continue
        start_ns, end_ns = int(op_times.start_ns[op]), int(op_times.end_ns[op])
        seen = expected.setdefault((int(graph.ops.rank[op]), step[op]), [start_ns, end_ns])
        seen[0], seen[1] = min(seen[0], start_ns), max(seen[1], end_ns)
    found = rank_steps(graph, op_times)
    rows = zip(*(values.tolist() for _, values in found.columns()), strict=True)
    assert list(rows) == [(*key, *times) for key, times in sorted(expected.items())]
