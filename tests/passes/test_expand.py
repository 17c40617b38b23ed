"""All-reduces as sends on links: the same time as whole ones, and answers that those have not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from augury.core.enums import Discipline, OpKind, ResourceKind
from augury.core.errors import UsageError
from augury.core.graph.builder import GraphBuilder
from augury.core.graph.graph import RATE_ONE, Graph
from augury.costs.collective_steps import ring
from augury.costs.links import Links
from augury.passes.expand_collectives import Topology
from augury.replay.run import replay
from tests.costs.test_links import MIB, equal_links
from tests.passes.applied import expand

SIZE = 16 * MIB


def training(num_ranks: int, *, collectives: int = 3, slow: float = 1.0) -> Graph:
    """Every rank computes, and reduces meanwhile; the all-reduce takes ``slow`` times what its
    sends would alone."""
    links = equal_links(num_ranks)
    work_ns = round(links.alone_ns(ring(SIZE, num_ranks), range(num_ranks)) * slow)
    b = GraphBuilder()
    ranks = [b.rank(host=f"h{i}") for i in range(num_ranks)]
    threads = [b.resource("main thread", rank=rank) for rank in ranks]
    streams = [
        b.shared_resource(
            "communication",
            rank=rank,
            kind=ResourceKind.COMMUNICATION,
            width=2,
            discipline=Discipline.FIFO,
        )
        for rank in ranks
    ]
    for thread, stream in zip(threads, streams, strict=True):
        b.interfere(victim=thread, aggressor=stream, rate=0.8)
    last: list[list[int]] = [[] for _ in ranks]
    sums: list[list[int]] = [[] for _ in ranks]
    for _ in range(collectives):
        gang = b.gang()
        for rank in ranks:
            computed = b.op(
                "backward",
                kind=OpKind.BACKWARD,
                rank=rank,
                resource=threads[rank],
                work_ns=10_000_000,
                after=last[rank],
            )
            last[rank] = [computed]
            sums[rank].append(
                b.op(
                    "all-reduce",
                    kind=OpKind.ALL_REDUCE,
                    rank=rank,
                    resource=streams[rank],
                    work_ns=work_ns,
                    size_bytes=SIZE,
                    gang=gang,
                    after=[computed],
                )
            )
    for rank in ranks:
        b.op(
            "update",
            kind=OpKind.UPDATE,
            rank=rank,
            resource=threads[rank],
            work_ns=1_000_000,
            after=[*last[rank], *sums[rank]],
        )
    return b.build()


@pytest.mark.parametrize("num_ranks", [2, 4])
@pytest.mark.parametrize("slow", [1.0, 1.3])
def test_a_step_takes_as_long_as_with_whole_collectives(num_ranks: int, slow: float) -> None:
    graph = training(num_ranks, slow=slow)
    fine = expand(graph, equal_links(num_ranks))
    assert not (fine.ops.kind == OpKind.ALL_REDUCE).any()
    assert (fine.ops.kind == OpKind.SEND).any()
    assert replay(fine).step_ns == pytest.approx(replay(graph).step_ns, rel=0.02)


def test_every_byte_of_the_algorithm_is_sent() -> None:
    fine = expand(training(4), equal_links(4))
    sent = fine.ops.size_bytes[fine.ops.kind == OpKind.SEND].sum()
    assert sent == 3 * 2 * 3 * SIZE


def test_one_slow_link_is_predicted() -> None:
    graph, links = training(4), equal_links(4)
    before = replay(expand(graph, links)).step_ns
    one = replay(expand(graph, links, links=links.faster(1, 0.5))).step_ns
    everywhere = replay(expand(graph, links, links=links.all_faster(0.5))).step_ns
    assert before < 0.7 * one
    assert one <= everywhere


def test_stalls_of_a_link_go_with_it() -> None:
    """The all-reduce takes 1.5 times as long as its sends alone, because of stalls."""
    graph, links = training(2, slow=1.5), replace(equal_links(2), stall=1.5)
    stalled = replay(expand(graph, links)).step_ns
    healed = replay(expand(graph, links, links=replace(links, stall=1.0))).step_ns
    assert stalled == pytest.approx(replay(graph).step_ns, rel=0.03)
    assert healed == pytest.approx(replay(training(2)).step_ns, rel=0.03)


def test_half_duplex_takes_twice_as_long_where_both_ways_are_busy() -> None:
    graph, links = training(2), equal_links(2)
    full = replay(expand(graph, links)).step_ns
    half = replay(expand(graph, links, topology=Topology(half_duplex=True))).step_ns
    assert half > 1.7 * full


def test_the_order_of_a_ring_matters_only_on_unequal_links() -> None:
    graph, links = training(4), equal_links(4)
    other = Topology(ring_order=(0, 2, 1, 3))
    assert (
        replay(expand(graph, links, topology=other)).step_ns == replay(expand(graph, links)).step_ns
    )


def test_a_slow_pair_is_avoided_by_another_order() -> None:
    links = equal_links(4)
    slow = links.ns_per_byte.copy()
    slow[1, 0] = slow[0, 1] = 40.0
    graph, unequal = training(4), Links.of(slow, links.latency_ns)
    neighbours = replay(expand(graph, links, links=unequal)).step_ns
    apart = replay(
        expand(graph, links, links=unequal, topology=Topology(ring_order=(0, 2, 1, 3)))
    ).step_ns
    assert apart < 0.5 * neighbours


@pytest.mark.parametrize("name", ["tree", "halving-doubling"])
def test_other_algorithms_end(name: str) -> None:
    fine = expand(training(4), equal_links(4), topology=Topology(algorithm=name))
    assert replay(fine).step_ns > 0


def test_an_unknown_algorithm_is_refused() -> None:
    with pytest.raises(UsageError, match="no algorithm 'magic'"):
        expand(training(2), equal_links(2), topology=Topology(algorithm="magic"))


def test_an_order_that_leaves_ranks_out() -> None:
    with pytest.raises(UsageError, match="no order"):
        expand(training(4), equal_links(4), topology=Topology(ring_order=(0, 1)))


@pytest.mark.parametrize(("factor", "taken"), [(2.0, 0.4), (1.0, 0.2), (0.5, 0.1)])
def test_links_of_another_speed_take_the_same_processor_time(factor: float, taken: float) -> None:
    links = equal_links(2)
    changed = expand(training(2), links, links=links.all_faster(factor))
    kinds = changed.resources.kind[changed.interference.aggressor]
    on_links = np.isin(kinds, (ResourceKind.LINK_OUT, ResourceKind.LINK_IN))
    assert on_links.any()
    rates = changed.interference.rate[on_links] / RATE_ONE
    assert rates == pytest.approx(np.full(on_links.sum(), 1 - taken), abs=0.01)
