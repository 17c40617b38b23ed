"""Faster and slower compute, stragglers, and communication that nothing waits for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import augury
from augury.build.recorded.recorded_graph import build_recorded
from augury.core.enums import OpKind, ResourceKind
from augury.core.graph.builder import GraphBuilder
from augury.core.graph.graph import RATE_ONE
from augury.core.graph.graph_spec import verify
from augury.replay.run import replay
from tests.build.recorded_runs import ddp_run
from tests.passes.applied import perfect_overlap, scale_compute, without_stragglers
from tests.passes.recorded import is_communication, recorded


def compute_ns(graph, rank: int, step: int) -> int:
    own = (graph.ops.rank == rank) & (graph.ops.step == step) & ~is_communication(graph)
    return int(graph.ops.work_ns[own].sum())


def test_as_fast_as_it_is_changes_nothing() -> None:
    graph, _ = recorded(compute_rate=0.7)
    assert scale_compute(graph, 1.0) == graph


def test_only_the_named_ranks_are_slower() -> None:
    graph, _ = recorded(copies=(0, 0, 0, 0))
    slower = scale_compute(graph, 1.5, [1])
    verify(slower)
    assert compute_ns(slower, 0, 10) == compute_ns(graph, 0, 10)
    assert compute_ns(slower, 1, 10) == pytest.approx(1.5 * compute_ns(graph, 1, 10), rel=1e-6)
    real = ddp_run(copies=(0, 0, 0, 0), slower={1: 1.5}).trace()
    assert replay(slower).step_ns == pytest.approx(replay(build_recorded(real)).step_ns, rel=0.01)


def test_communication_takes_more_of_a_slower_processor() -> None:
    graph, _ = recorded(compute_rate=0.8, copies=(0, 0, 0, 0))
    slower = scale_compute(graph, 2.0, [0])
    kinds, owner = slower.resources.kind, slower.resources.rank
    rules = slower.interference
    of_compute = kinds[rules.victim] == ResourceKind.COMPUTE
    rates = {
        int(owner[victim]): rate / RATE_ONE
        for victim, rate in zip(rules.victim[of_compute], rules.rate[of_compute], strict=True)
    }
    assert rates == pytest.approx({0: 0.6, 1: 0.8}, abs=0.01)


@settings(max_examples=25)
@given(st.lists(st.floats(0.6, 2.5), min_size=3, max_size=3), st.sampled_from([1.0, 0.7]))
def test_without_stragglers_all_are_as_fast_as_the_fastest(
    scales: list[float], rate: float
) -> None:
    graph, _ = recorded(
        num_ranks=3,
        slower=dict(enumerate(scales)),
        compute_rate=rate,
        vary={(0, 1): 1.7, (2, 2): 0.8},
    )
    changed = without_stragglers(graph)
    verify(changed)
    typical = [
        np.median([compute_ns(graph, rank, step) for step in (10, 11, 12)]) for rank in range(3)
    ]
    for rank in range(3):
        for step in (10, 11, 12):
            at_most_ns = min(compute_ns(graph, rank, step), *typical)
            assert compute_ns(changed, rank, step) == pytest.approx(at_most_ns, rel=1e-4)
    communication = is_communication(graph)
    assert (changed.ops.work_ns[communication] == graph.ops.work_ns[communication]).all()


def test_no_step_is_longer_without_stragglers() -> None:
    """Most steps are long on both ranks, and one is short."""
    vary = {(rank, step): 3.0 for rank in (0, 1) for step in (0, 1)}
    graph, _ = recorded(num_ranks=2, slower={1: 1.01}, vary=vary)
    changed = without_stragglers(graph)
    assert (changed.ops.work_ns <= graph.ops.work_ns).all()
    assert replay(changed).makespan_ns <= replay(graph).makespan_ns


def test_servers_are_no_fast_ranks() -> None:
    graph = augury.synth(scheme="ps", ranks=3, servers=2, steps=2)
    step_ns = replay(without_stragglers(graph)).step_ns
    assert step_ns == pytest.approx(replay(graph).step_ns, rel=1e-3)


def test_one_rank_has_no_stragglers() -> None:
    graph, _ = recorded(num_ranks=1, vary={(0, 1): 1.7})
    assert without_stragglers(graph) == graph


@settings(max_examples=40)
@given(
    st.integers(1, 3),
    st.floats(0.05, 20),
    st.sampled_from([((0, 1), (2, 3)), ((0,), (1,), (2,), (3,)), ((0, 1, 2, 3),)]),
    st.lists(st.floats(0.6, 2.0), min_size=3, max_size=3),
    st.booleans(),
)
def test_perfect_overlap_is_the_longer_of_the_two(
    num_ranks: int,
    ns_per_byte: float,
    buckets: tuple[tuple[int, ...], ...],
    scales: list[float],
    broadcast: bool,
) -> None:
    graph, _ = recorded(
        num_ranks=num_ranks,
        ns_per_byte=ns_per_byte,
        buckets=buckets,
        slower=dict(enumerate(scales)),
        broadcast=broadcast,
    )
    hidden = perfect_overlap(graph)
    verify(hidden)
    before, after = replay(graph), replay(hidden)
    assert after.makespan_ns <= before.makespan_ns
    assert after.step_ns <= before.step_ns * 1.001
    for rank in range(num_ranks):
        own = graph.ops.rank == rank
        for chosen in (own & is_communication(graph), own & ~is_communication(graph)):
            assert after.makespan_ns >= graph.ops.work_ns[chosen].sum()


@pytest.mark.parametrize(("ns_per_byte", "step_ns"), [(0.5, 17_000_000), (20.0, 200_200_000)])
def test_hidden_communication_costs_only_what_is_longer(ns_per_byte: float, step_ns: int) -> None:
    """17 ms of compute; 10 MB in two buckets, 0.1 ms each besides."""
    graph, _ = recorded(num_steps=7, ns_per_byte=ns_per_byte, copies=(0, 0, 0, 0))
    hidden = perfect_overlap(graph)
    assert replay(hidden).step_ns == pytest.approx(step_ns, rel=0.01)
    assert replay(graph).step_ns > 1.05 * step_ns


def test_collectives_start_in_the_same_order_without_waits() -> None:
    """Rank 1 picks up both broadcasts late. Without the order, its all-reduces would take both
    places before them, and rank 0's broadcasts both places of rank 0."""
    builder = GraphBuilder()
    ranks = [builder.rank(), builder.rank()]
    threads = [builder.resource("thread", rank=rank) for rank in ranks]
    links = [
        builder.shared_resource("link", rank=r, kind=ResourceKind.COMMUNICATION, width=2)
        for r in ranks
    ]
    before: list[list[int]] = [[], []]
    for kind in (OpKind.BROADCAST, OpKind.BROADCAST, OpKind.ALL_REDUCE, OpKind.ALL_REDUCE):
        gang = builder.gang()
        for rank in ranks:
            after = [
                builder.op(
                    "compute", rank=rank, resource=threads[rank], work_ns=5, after=before[rank]
                )
            ]
            before[rank] = list(after)
            if kind == OpKind.BROADCAST:
                late = builder.op(
                    "picked up", rank=rank, kind=OpKind.DELAY, work_ns=99 * rank, after=after
                )
                after = [late]
            member = builder.op(
                "exchange",
                kind=kind,
                rank=rank,
                resource=links[rank],
                work_ns=7,
                gang=gang,
                after=after,
            )
            before[rank].append(member)
    graph = builder.build()
    assert replay(perfect_overlap(graph)).makespan_ns < replay(graph).makespan_ns
