"""Cost of sharing and interference in the kernel: counted, not timed."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.recorded_graphs import RATED_STYLES, crowded, recorded

from augury.core.enums import OpKind
from augury.core.graph.builder import GraphBuilder
from augury.core.graph.graph import NONE, RATE_ONE, Graph
from augury.replay import reference
from augury.replay.kernel import Replayer, simulate

MOST_UPDATES_PER_OP = 8
"""Each operation is added to a queue of ends and removed, and moves an event or two."""


def updates_per_op(graph: Graph) -> float:
    replayer = Replayer(graph)
    assert replayer.simulate().is_complete
    return replayer.num_rate_updates / graph.num_ops


@pytest.mark.parametrize("num_flows", [500, 4_000, 32_000])
def test_updates_on_a_crowded_link_are_linear_in_its_flows(num_flows: int):
    assert 1 < updates_per_op(crowded(num_flows)) < MOST_UPDATES_PER_OP


@pytest.mark.parametrize("style", RATED_STYLES)
def test_updates_of_recorded_runs_are_linear_in_their_operations(style: str):
    assert 1 < updates_per_op(recorded(style, 40_000)) < MOST_UPDATES_PER_OP


def test_updates_do_not_grow_with_the_gangs_that_take_the_same_way():
    def gangs_over_two_links(num_gangs: int) -> Graph:
        builder = GraphBuilder()
        ranks = [builder.rank(), builder.rank()]
        links = [builder.shared_resource(f"link {rank}") for rank in ranks]
        for i in range(num_gangs):
            gang = builder.gang()
            for rank, link in zip(ranks, links, strict=True):
                builder.op("gang", rank=rank, resource=link, work_ns=1_000 + i, gang=gang)
        return builder.build()

    assert updates_per_op(gangs_over_two_links(10_000)) < MOST_UPDATES_PER_OP


def test_updates_do_not_grow_with_the_size_of_a_gang_whose_ranks_compute():
    """Each change of compute changes the rate of one member of a gang that runs all the while."""
    builder = GraphBuilder()
    gang = builder.gang()
    for number in range(64):
        rank = builder.rank()
        stream = builder.resource("communication", rank=rank)
        compute = builder.resource("compute", rank=rank)
        builder.interfere(victim=stream, aggressor=compute, rate=0.5 + number / 256)
        builder.op(
            "all-reduce",
            kind=OpKind.ALL_REDUCE,
            rank=rank,
            resource=stream,
            work_ns=10**6,
            gang=gang,
        )
        before: list[int] = []
        for i in range(50):
            pause = builder.op(
                "pause", rank=rank, work_ns=1 + (number * 7 + i * 13) % 90, after=before
            )
            work = builder.op("compute", rank=rank, resource=compute, work_ns=50, after=[pause])
            before = [work]
    assert updates_per_op(builder.build()) < MOST_UPDATES_PER_OP


def test_sixty_thousand_equal_flows_that_share_one_link_end_together():
    num_flows, work_ns = 60_000, 1_000
    builder = GraphBuilder()
    rank = builder.rank()
    link = builder.shared_resource("link")
    for _ in range(num_flows):
        builder.op("flow", rank=rank, resource=link, work_ns=work_ns)
    end_ns = simulate(builder.build()).end_ns
    rate = RATE_ONE // num_flows
    assert (end_ns == -(-work_ns * RATE_ONE // rate)).all()


def test_sixty_thousand_flows_that_join_one_by_one_leave_in_the_order_of_their_work():
    """Flows end in the order of their work, whichever came first; none is lost."""
    num_flows = 60_000
    builder = GraphBuilder()
    rank = builder.rank()
    link = builder.shared_resource("link", capacity=2.0)
    flows = []
    for i in range(num_flows):
        wait = builder.op("wait", rank=rank, work_ns=i % 997)
        work_ns = 10_000 + i * 7_919 % 60_013
        flows.append(builder.op("flow", rank=rank, resource=link, work_ns=work_ns, after=[wait]))
    graph = builder.build()
    op_times = simulate(graph)
    assert op_times.is_complete
    end_ns, work_ns = op_times.end_ns[flows], graph.ops.work_ns[flows]
    # All have joined before the first one leaves, and have had at most 997 ns until then.
    order = np.argsort(work_ns)
    assert (np.maximum.accumulate(end_ns[order])[:-2_000] <= end_ns[order][2_000:]).all()
    # A link of capacity 2 does all the work in half the time, up to the rounding of rates.
    assert work_ns.sum() / 2 <= end_ns.max() <= work_ns.sum() / 2 * 1.05


@pytest.mark.parametrize("style", RATED_STYLES)
def test_kernel_and_reference_agree_on_recorded_runs(style: str):
    for seed in range(3):
        graph = recorded(style, 3_000, num_ranks=4 + seed, seed=seed)
        assert simulate(graph).same_as(reference.simulate(graph))


def test_kernel_and_reference_agree_on_a_crowded_link():
    graph = crowded(600)
    assert simulate(graph).same_as(reference.simulate(graph))


def test_virtual_time_outlasts_64_bits():
    """A link that is never idle for longer than its virtual time can count: it wraps."""
    builder = GraphBuilder()
    rank = builder.rank()
    link = builder.shared_resource("link", width=2)
    others = builder.resource("others", rank=rank)
    builder.interfere(victim=link, aggressor=others, rate=0.5)
    before = NONE
    for i in range(24):
        builder.op("long", rank=rank, resource=link, work_ns=(1 << 42) - i, priority=i)
        after = [] if before == NONE else [before]
        before = builder.op("other", rank=rank, resource=others, work_ns=1 << 40, after=after)
    graph = builder.build()
    op_times = simulate(graph)
    assert op_times.end_ns.max() > 1 << 45
    assert op_times.same_as(reference.simulate(graph))
