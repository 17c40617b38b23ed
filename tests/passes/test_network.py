"""Another network: only communication changes, by as much as its costs say."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from augury.core.enums import OpKind
from augury.core.errors import InputError
from augury.core.graph.builder import GraphBuilder
from augury.core.graph.graph import RATE_ONE
from augury.core.trace.trace import Calibration
from augury.costs.collective_costs import fit_network, link_rate
from augury.replay.run import replay
from tests.passes.applied import change_bandwidth, change_latency
from tests.passes.recorded import is_communication, recorded, reduced_ns


def uneven(**options):
    """Two sizes, so that latency (0.1 ms) and bandwidth (1 ns a byte) are told apart."""
    return recorded(buckets=((0, 1, 2), (3,)), **options)


def test_as_fast_as_it_is_changes_nothing() -> None:
    graph, costs = uneven(compute_rate=0.7)
    assert change_bandwidth(graph, costs, 1.0) == (graph, costs)
    assert change_latency(graph, costs) == (graph, costs)


def test_costs_of_a_run_are_recovered() -> None:
    _, costs = uneven(ns_per_byte=1.0)
    assert costs[OpKind.ALL_REDUCE].ns_per_byte == pytest.approx(1.0, rel=0.01)
    assert costs[OpKind.ALL_REDUCE].time_ns(0) == pytest.approx(100_000, rel=0.2)


def test_half_the_bandwidth_doubles_pure_wire_time() -> None:
    graph, costs = recorded(latency_ns=0)
    changed, _ = change_bandwidth(graph, costs, 0.5)
    assert reduced_ns(changed) == pytest.approx(2 * reduced_ns(graph), abs=2)
    others = ~is_communication(graph)
    assert (changed.ops.work_ns[others] == graph.ops.work_ns[others]).all()


def test_latency_changes_what_does_not_grow() -> None:
    graph, costs = uneven(ns_per_byte=1.0)
    slower, _ = change_latency(graph, costs, factor=3.0)
    assert reduced_ns(slower) - reduced_ns(graph) == pytest.approx(np.full(12, 200_000), rel=0.2)
    later, _ = change_latency(graph, costs, more_ns=50_000)
    assert reduced_ns(later) - reduced_ns(graph) == pytest.approx(np.full(12, 100_000), rel=0.1)


@settings(max_examples=20)
@given(st.floats(0.1, 10), st.floats(0.1, 10))
def test_changes_build_on_each_other(factor: float, latency: float) -> None:
    graph, costs = uneven(num_steps=1)
    one = change_latency(*change_bandwidth(graph, costs, factor), factor=latency)
    other = change_bandwidth(*change_latency(graph, costs, factor=latency), factor)
    expected = [
        costs[OpKind.ALL_REDUCE].changed(wire=1 / factor, rest=latency).time_ns(int(size))
        for size in graph.ops.size_bytes[graph.ops.kind == OpKind.ALL_REDUCE]
    ]
    assert reduced_ns(one[0]) == pytest.approx(expected, rel=0.02)
    assert reduced_ns(one[0]) == pytest.approx(reduced_ns(other[0]), rel=1e-3)
    back, _ = change_bandwidth(*change_bandwidth(graph, costs, factor), 1 / factor)
    assert reduced_ns(back) == pytest.approx(reduced_ns(graph), abs=20)


def test_a_faster_network_is_never_slower() -> None:
    graph, costs = uneven(ns_per_byte=4.0)
    steps = [replay(change_bandwidth(graph, costs, f)[0]).step_ns for f in (0.2, 0.5, 1, 2, 10)]
    assert steps == sorted(steps, reverse=True)


def test_processor_time_of_communication_stays() -> None:
    """At half the speed it takes half as much from compute beside it, for twice as long."""
    graph, costs = recorded(latency_ns=0, compute_rate=0.6)
    changed, _ = change_bandwidth(graph, costs, 0.5)
    assert graph.interference.rate / RATE_ONE == pytest.approx(np.full(2, 0.6), abs=0.01)
    assert changed.interference.rate / RATE_ONE == pytest.approx(np.full(2, 0.8), abs=0.01)


def test_the_rate_of_links() -> None:
    graph, costs = uneven(ns_per_byte=8.0)
    assert link_rate(graph, costs) == pytest.approx(125e6, rel=0.02)
    faster = change_bandwidth(graph, costs, 4.0)
    assert link_rate(*faster) == pytest.approx(500e6, rel=0.02)


@pytest.mark.parametrize(
    ("kind", "share"),
    [(OpKind.ALL_GATHER, 0.5), (OpKind.REDUCE_SCATTER, 0.5), (OpKind.BROADCAST, 1.0)],
)
def test_the_rate_is_that_of_the_collectives_with_most_bytes(kind: OpKind, share: float) -> None:
    """A sharded job also reduces the norm of its gradients: 4 bytes, whose time is latency."""
    builder = GraphBuilder()
    ranks = [builder.rank(), builder.rank()]
    streams = [builder.resource("communication", rank=rank) for rank in ranks]
    for size_bytes, work_ns, own_kind in [(4, 20_000, OpKind.ALL_REDUCE), (10**7, 10**7, kind)]:
        gang = builder.gang()
        for rank in ranks:
            builder.op(
                "exchange",
                kind=own_kind,
                rank=rank,
                resource=streams[rank],
                work_ns=work_ns,
                size_bytes=size_bytes,
                gang=gang,
            )
    graph = builder.build()
    assert link_rate(graph, fit_network(graph)) == pytest.approx(share * 1e9)


def test_groups_of_one_rank_have_no_link() -> None:
    builder = GraphBuilder()
    for rank in (builder.rank(), builder.rank()):
        builder.op(
            "alone",
            kind=OpKind.ALL_REDUCE,
            rank=rank,
            resource=builder.resource("communication", rank=rank),
            work_ns=10**6,
            size_bytes=10**7,
            gang=builder.gang(),
        )
    graph = builder.build()
    with pytest.raises(InputError, match="bandwidth of the graph's links is unknown"):
        link_rate(graph, fit_network(graph))


def test_one_rank_has_no_link() -> None:
    with pytest.raises(InputError, match="bandwidth of the graph's links is unknown"):
        link_rate(*recorded(num_ranks=1))


def test_calibration_tells_the_shape() -> None:
    graph, _ = recorded(latency_ns=100_000, ns_per_byte=1.0)
    rows = [
        Calibration(
            collective=name,
            group=0,
            size_bytes=size,
            concurrent=concurrent,
            beside_compute=False,
            durations_ns=[concurrent * (100_000 + size)] * 3,
        )
        for name in ("all_reduce", "no_such_collective")
        for size in (4_096, 1 << 20, 16 << 20)
        for concurrent in (1, 2)
    ]
    costs = fit_network(graph, rows)
    assert costs[OpKind.ALL_REDUCE].time_ns(0) == pytest.approx(100_000, rel=0.02)
    assert costs[OpKind.ALL_REDUCE].ns_per_byte == pytest.approx(1.0, rel=0.02)
