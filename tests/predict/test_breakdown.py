"""Breakdowns of replayed runs: parts of a step by rank, layers, collectives and links."""

from __future__ import annotations

from pathlib import Path

import pytest

import augury
from augury.core.enums import OpKind, ResourceKind
from augury.core.graph.builder import GraphBuilder
from augury.core.results.breakdown import CollectiveTimes, LayerBreakdown, RankBreakdown
from augury.core.timeline import Timeline
from augury.predict.breakdown import break_down
from augury.predict.collective_breakdown import bus_factor
from augury.predict.opened_run import open_source
from augury.replay.run import replay

GOLDEN = Path(__file__).parents[1] / "golden/runs"


@pytest.fixture(scope="module")
def two_ranks() -> Timeline:
    """Compute of 100 and 300 ns, then an all-reduce of 200 ns, half hidden by 100 ns of compute."""
    builder = GraphBuilder()
    gang = builder.gang()
    for work_ns in (100, 300):
        rank = builder.rank()
        compute = builder.resource("compute", rank=rank)
        stream = builder.resource("comm", rank=rank, kind=ResourceKind.COMMUNICATION)
        backward = builder.op(
            "backward",
            kind=OpKind.BACKWARD,
            rank=rank,
            resource=compute,
            work_ns=work_ns,
            layer="fc",
            step=0,
        )
        reduce = builder.op(
            "reduce",
            kind=OpKind.ALL_REDUCE,
            rank=rank,
            resource=stream,
            work_ns=200,
            gang=gang,
            size_bytes=1_000,
            after=[backward],
            step=0,
        )
        hidden = builder.op(
            "forward",
            kind=OpKind.FORWARD,
            rank=rank,
            resource=compute,
            work_ns=100,
            layer="fc",
            after=[backward],
            step=0,
        )
        builder.op(
            "update",
            kind=OpKind.UPDATE,
            rank=rank,
            resource=compute,
            work_ns=50,
            layer="fc",
            after=[reduce, hidden],
            step=0,
        )
    return replay(builder.build())


def test_parts_of_a_rank_add_up_to_its_step(two_ranks: Timeline) -> None:
    fast, slow = break_down(two_ranks).ranks
    assert fast == RankBreakdown(
        rank=0,
        step_ns=550,
        compute_ns=250,
        exposed_transfer_ns=200,
        exposed_waiting_ns=100,
        host_ns=0,
        idle_ns=0,
        communication_ns=400,
    )
    assert slow == RankBreakdown(
        rank=1,
        step_ns=550,
        compute_ns=450,
        exposed_transfer_ns=100,
        exposed_waiting_ns=0,
        host_ns=0,
        idle_ns=0,
        communication_ns=200,
    )


def test_layers(two_ranks: Timeline) -> None:
    found = break_down(two_ranks)
    assert found.num_layers == 1
    assert found.layers == [
        LayerBreakdown(
            layer="fc",
            num_ranks=2,
            forward_ns=100,
            backward_ns=200,
            update_ns=50,
            other_ns=0,
            communication_ns=0,
            size_bytes=0,
            critical_ns=350,
        )
    ]


def test_collectives_wait_for_the_last_rank_and_then_transfer(two_ranks: Timeline) -> None:
    (found,) = break_down(two_ranks).collectives
    assert (found.kind, found.size_bytes, found.num_ranks, found.per_step) == (
        "all_reduce",
        1_000,
        2,
        1.0,
    )
    assert found.measured is None
    assert found.replayed == CollectiveTimes(
        waiting_ns=100, transfer_ns=200, bus_bandwidth_bytes_per_s=5e9
    )


def test_links(two_ranks: Timeline) -> None:
    found = break_down(two_ranks)
    assert found.num_links == 2
    by_rank = {one.rank: one for one in found.links}
    assert by_rank[0].busy_pct == by_rank[1].busy_pct == pytest.approx(100 * 200 / 550, abs=0.01)
    assert by_rank[0].waiting_pct == pytest.approx(100 * 200 / 550, abs=0.01)
    assert by_rank[1].waiting_pct == 0
    mean_pct = sum(by_rank[0].over_window_pct) / len(by_rank[0].over_window_pct)
    assert mean_pct == pytest.approx(by_rank[0].busy_pct, abs=0.5)


@pytest.mark.parametrize(
    ("kind", "factor"),
    [
        (OpKind.ALL_REDUCE, 1.75),
        (OpKind.ALL_GATHER, 0.875),
        (OpKind.REDUCE_SCATTER, 0.875),
        (OpKind.ALL_TO_ALL, 0.875),
        (OpKind.BROADCAST, 1.0),
    ],
)
def test_bus_bandwidth_counts_bytes_on_each_link(kind: OpKind, factor: float) -> None:
    assert bus_factor(kind, 8) == factor


def test_measured_and_replayed_collectives_of_a_recorded_run() -> None:
    opened = open_source(GOLDEN / "conv-2")
    found = break_down(replay(opened.graph), opened.trace).collectives
    assert {one.kind for one in found} == {"all_reduce", "broadcast"}
    for one in found:
        assert one.measured is not None
        assert one.replayed is not None
        assert one.num_ranks == 2


def test_parts_of_every_rank_add_up_in_larger_runs() -> None:
    for options in ({"algorithm": "ring"}, {"scheme": "ps"}, {"scheme": "pipeline"}):
        graph = augury.synth(ranks=4, layers=6, straggler=["1:1.3"], **options)
        for one in break_down(replay(graph)).ranks:
            parts = one.compute_ns + one.exposed_transfer_ns + one.exposed_waiting_ns
            assert parts + one.host_ns + one.idle_ns == pytest.approx(one.step_ns, abs=5)
            assert min(one.compute_ns, one.idle_ns, one.exposed_waiting_ns) >= 0
