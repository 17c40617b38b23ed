"""Engines agree to the nanosecond on thousands of random graphs.

The Python reference is checked against an independent SimPy model, and the kernel against the
reference, which also covers features that SimPy lacks: causes, shared resources, interference.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from augury.core.graph.builder import GraphBuilder
from augury.core.graph.graph import NONE, RATE_ONE, Graph, Ops, Resources
from augury.replay import kernel, reference
from augury.replay.op_times import OpTimes
from tests.campaigns import campaign

from . import simpy_model
from .strategies import (
    COARSE,
    POSITIVE,
    SPREAD,
    TIES,
    crowds,
    graphs,
    large_graph,
    pipelines,
    symmetric_graphs,
)

some = campaign(300)
many = campaign(800)
"""Several tests of each kind: more than 3,000 graphs go through SimPy, more than 8,000 through the
kernel, more than 2,000 of them with shared resources."""


def assert_engines_agree(graph: Graph) -> OpTimes:
    """On start and end; reference and kernel also on causes."""
    op_times = assert_kernel_agrees(graph)
    start_ns, end_ns = simpy_model.simulate(graph)
    assert op_times.start_ns.tolist() == start_ns.tolist()
    assert op_times.end_ns.tolist() == end_ns.tolist()
    return op_times


def assert_kernel_agrees(graph: Graph) -> OpTimes:
    expected, op_times = reference.simulate(graph), kernel.simulate(graph)
    assert op_times.start_ns.tolist() == expected.start_ns.tolist()
    assert op_times.end_ns.tolist() == expected.end_ns.tolist()
    assert op_times.cause.tolist() == expected.cause.tolist()
    return expected


# -- exclusive resources: SimPy, reference, kernel -----------------------------------------


@many
@given(graphs())
def test_streams_priorities_and_zero_work(graph: Graph):
    assert_engines_agree(graph)


@many
@given(graphs(gangs=True))
def test_gangs(graph: Graph):
    assert assert_engines_agree(graph).is_complete


@many
@given(graphs(gangs=True, may_deadlock=True))
def test_gangs_that_may_deadlock(graph: Graph):
    assert_engines_agree(graph)


@some
@given(graphs(gangs=True, straggler=True))
def test_stragglers(graph: Graph):
    assert_engines_agree(graph)


@some
@given(graphs(gangs=True, servers=True, straggler=True, extras=True))
def test_servers(graph: Graph):
    assert_engines_agree(graph)


@some
@given(symmetric_graphs(max_classes=3))
def test_symmetric_ranks(graph: Graph):
    assert_engines_agree(graph)


@some
@given(pipelines(works=TIES))
def test_pipelines(graph: Graph):
    assert_engines_agree(graph)


@pytest.mark.parametrize("seed", range(4))
def test_large_graphs(seed: int):
    assert_engines_agree(large_graph(seed, num_records=1_500, gangs=True, servers=True))


# -- where everything on a resource takes time, the kernel looks ahead: reference, kernel --


@many
@given(pipelines(works=COARSE))
def test_looking_ahead_along_pipelines(graph: Graph):
    assert_kernel_agrees(graph)


@some
@given(pipelines(works=SPREAD))
def test_looking_far_ahead_along_pipelines(graph: Graph):
    assert_kernel_agrees(graph)


@some
@given(graphs(works=POSITIVE, gangs=True, straggler=True, servers=True))
def test_looking_ahead_among_ties(graph: Graph):
    assert_kernel_agrees(graph)


@many
@given(graphs(works=COARSE, gangs=True))
def test_looking_ahead_within_the_shortest_work(graph: Graph):
    assert_kernel_agrees(graph)


@some
@given(graphs(works=COARSE, gangs=True, may_deadlock=True))
def test_looking_ahead_into_deadlocks(graph: Graph):
    assert_kernel_agrees(graph)


@some
@given(graphs(works=SPREAD, gangs=True))
def test_looking_ahead_over_all_magnitudes(graph: Graph):
    assert_kernel_agrees(graph)


@pytest.mark.parametrize("works", [POSITIVE, COARSE, SPREAD], ids=["positive", "coarse", "spread"])
@pytest.mark.parametrize("seed", range(4))
def test_looking_ahead_in_large_graphs(works: Sequence[int], seed: int):
    assert_kernel_agrees(large_graph(seed, num_records=5_000, works=works, gangs=True))


# -- shared resources and interference: reference, kernel ----------------------------------


@many
@given(graphs(gangs=True, shared=True, extras=True))
def test_shared_resources(graph: Graph):
    assert assert_kernel_agrees(graph).is_complete


@some
@given(graphs(gangs=True, shared=True, may_deadlock=True))
def test_shared_resources_that_may_deadlock(graph: Graph):
    assert_kernel_agrees(graph)


@many
@given(graphs(gangs=True, shared=True, interference=True, straggler=True))
def test_interference(graph: Graph):
    assert_kernel_agrees(graph)


@some
@given(graphs(gangs=True, interference=True, servers=True))
def test_interference_between_exclusive_resources(graph: Graph):
    assert_kernel_agrees(graph)


@many
@given(crowds())
def test_gangs_of_flows_over_every_subset_of_links(graph: Graph):
    assert assert_kernel_agrees(graph).is_complete


@pytest.mark.parametrize("seed", range(4))
def test_sharing_in_large_graphs(seed: int):
    assert_kernel_agrees(
        large_graph(seed, num_records=1_000, gangs=True, shared=True, interference=True)
    )


@some
@given(graphs(gangs=True, may_deadlock=True), st.sampled_from((1, 1_000, 10**9)))
def test_rates_that_never_change_give_what_the_fast_path_gives(graph: Graph, scale: int):
    columns = dict(graph.ops.columns()) | {"work_ns": graph.ops.work_ns * scale}
    exclusive = graph.evolve(ops=Ops(**columns))
    rated = exclusive.evolve(resources=_with_an_unused_link(graph.resources))
    assert exclusive.is_exclusive
    assert not rated.is_exclusive
    expected = reference.simulate(exclusive)
    assert reference.simulate(rated).same_as(expected)
    assert kernel.simulate(rated).same_as(expected)


def _with_an_unused_link(resources: Resources) -> Resources:
    link = {"kind": 0, "rank": NONE, "width": 1, "capacity": RATE_ONE, "discipline": 0, "name": 0}
    return Resources(
        **{name: np.append(values, link[name]) for name, values in resources.columns()}
    )


# -- sharing against exact arithmetic ------------------------------------------------------

_flows = st.lists(st.tuples(st.integers(0, 40), st.integers(1, 50)), min_size=1, max_size=8)


@some
@given(_flows, st.sampled_from((1.0, 2.0, 0.5, 1.5, 3.0)))
def test_flows_on_one_link_share_it_equally(flows: list[tuple[int, int]], capacity: float):
    builder = GraphBuilder()
    rank = builder.rank()
    link = builder.shared_resource("link", capacity=capacity)
    transfers = []
    for arrival_ns, work_ns in flows:
        wait = builder.op("wait", rank=rank, work_ns=arrival_ns)
        transfers.append(
            builder.op("transfer", rank=rank, work_ns=work_ns, resource=link, after=[wait])
        )
    graph = builder.build()
    exact = _fluid_ends(flows, Fraction(capacity))
    for simulate in (reference.simulate, kernel.simulate):
        late = [
            int(end) - ideal
            for end, ideal in zip(simulate(graph).end_ns[transfers], exact, strict=True)
        ]
        # Every end is rounded up to a nanosecond, which others' shares feel.
        assert all(0 <= ns <= len(flows) for ns in late), late


def _fluid_ends(flows: list[tuple[int, int]], capacity: Fraction) -> list[Fraction]:
    """When flows would end if time were continuous: from one arrival or end to the next."""
    left = {i: Fraction(work_ns) for i, (_, work_ns) in enumerate(flows)}
    ends = [Fraction(0)] * len(flows)
    now = Fraction(0)
    while left:
        active = [i for i in left if flows[i][0] <= now]
        arrivals = [Fraction(flows[i][0]) for i in left if flows[i][0] > now]
        if not active:
            now = min(arrivals)
            continue
        rate = min(Fraction(1), capacity / len(active))
        next_time = min([now + min(left[i] for i in active) / rate, *arrivals])
        for i in active:
            left[i] -= (next_time - now) * rate
            if left[i] == 0:
                ends[i] = next_time
                del left[i]
        now = next_time
    return ends
