"""All collectives deliver the right data to the right ranks, for every algorithm
and kind of port."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from augury.build.collectives import ring, tree, two_level
from augury.build.collectives.algorithms import ALGORITHMS, find_algorithm
from augury.build.collectives.ports import PortKind
from augury.build.collectives.scheme import CollectiveCall
from augury.core.cluster.cluster import Cluster
from augury.core.enums import OpKind
from augury.core.errors import UsageError
from augury.costs import closed_forms
from tests.build.scenes import FAST, SLOW, contributions, one_host, play, rows_of_rank, sent_bytes
from tests.campaigns import campaign

shapes = st.builds(
    Cluster.of_hosts,
    num_hosts=st.integers(1, 4),
    ranks_per_host=st.integers(1, 4),
    intra=st.just(FAST),
    inter=st.just(SLOW),
)
kinds = st.sampled_from(PortKind)
sizes = st.integers(0, 100_000)


@given(algorithm=st.sampled_from(ALGORITHMS), cluster=shapes, size_bytes=sizes, kind=kinds)
@campaign(200)
def test_every_result_has_every_contribution(algorithm, cluster, size_bytes, kind):
    played = play(algorithm.collective, cluster, size_bytes=size_bytes, kind=kind)
    assert played.op_times().is_complete
    assert len(played.results) == cluster.num_devices
    assert played.graph.ops.rank[played.results].tolist() == list(range(cluster.num_devices))
    needs = contributions(played.graph, played.inputs)
    everyone = (1 << cluster.num_devices) - 1
    for rank, result in enumerate(played.results):
        root_and_self = 1 | 1 << rank
        expected = root_and_self if algorithm.kind is OpKind.BROADCAST else everyone
        assert needs[result] & expected == expected


@given(
    name=st.sampled_from(["ring", "tree", "two-level"]),
    cluster=shapes,
    size_bytes=sizes,
    kind=kinds,
    late=st.integers(0, 3),
)
@settings(max_examples=60, deadline=None)
def test_no_rank_finishes_before_the_last_has_arrived(name, cluster, size_bytes, kind, late):
    late %= cluster.num_devices
    input_ns = [1] * cluster.num_devices
    input_ns[late] = 10_000_000
    collective = find_algorithm(OpKind.ALL_REDUCE, name).collective
    played = play(collective, cluster, size_bytes=size_bytes, kind=kind, input_ns=input_ns)
    assert played.op_times().end_ns[played.results].min() >= 10_000_000


@given(num_ranks=st.integers(1, 9), size_bytes=sizes, kind=kinds)
@settings(deadline=None)
def test_ring_all_reduce_takes_the_closed_form(num_ranks, size_bytes, kind):
    played = play(ring.all_reduce, one_host(num_ranks), size_bytes=size_bytes, kind=kind)
    assert played.took_ns() == closed_forms.all_reduce_ring_ns(size_bytes, num_ranks, FAST)


@pytest.mark.parametrize("kind", PortKind)
@pytest.mark.parametrize(
    ("collective", "closed_form"),
    [
        (ring.reduce_scatter, closed_forms.reduce_scatter_ns),
        (ring.all_gather, closed_forms.all_gather_ns),
        (find_algorithm(OpKind.ALL_TO_ALL, "gang").collective, closed_forms.all_to_all_ns),
        (find_algorithm(OpKind.ALL_REDUCE, "gang").collective, closed_forms.all_reduce_ring_ns),
        (find_algorithm(OpKind.BROADCAST, "gang").collective, closed_forms.broadcast_ns),
    ],
)
def test_other_collectives_take_their_closed_form(collective, closed_form, kind):
    played = play(collective, one_host(6), size_bytes=60_000, kind=kind)
    assert played.took_ns() == closed_form(60_000, 6, FAST)


def test_all_to_all_on_fifo_ports_takes_the_closed_form():
    collective = find_algorithm(OpKind.ALL_TO_ALL, "pairwise").collective
    played = play(collective, one_host(6), size_bytes=60_000)
    assert played.took_ns() == closed_forms.all_to_all_ns(60_000, 6, FAST)


@given(hosts=st.integers(1, 4), local=st.integers(1, 4), blocks=st.integers(1, 50))
@settings(deadline=None)
def test_two_level_takes_the_closed_form(hosts, local, blocks):
    cluster = Cluster.of_hosts(num_hosts=hosts, ranks_per_host=local, intra=FAST, inter=SLOW)
    size_bytes = blocks * hosts * local
    played = play(two_level.all_reduce, cluster, size_bytes=size_bytes)
    assert played.took_ns() == closed_forms.all_reduce_two_level_ns(
        size_bytes, num_hosts=hosts, ranks_per_host=local, intra=FAST, inter=SLOW
    )


@given(num_ranks=st.integers(2, 17), size_bytes=st.integers(10_000, 1_000_000))
@settings(max_examples=40, deadline=None)
def test_tree_is_near_its_closed_form(num_ranks, size_bytes):
    """The closed form counts the busiest port, not how chunks interleave on it."""
    played = play(tree.all_reduce, one_host(num_ranks), size_bytes=size_bytes)
    closed_form = closed_forms.all_reduce_tree_ns(size_bytes, num_ranks, FAST)
    assert 0.5 * closed_form <= played.took_ns() <= 1.5 * closed_form


@given(num_ranks=st.integers(1, 9), size_bytes=sizes, kind=kinds)
@settings(deadline=None)
def test_ring_all_reduce_sends_the_bytes_of_its_algorithm(num_ranks, size_bytes, kind):
    played = play(ring.all_reduce, one_host(num_ranks), size_bytes=size_bytes, kind=kind)
    by_rank = sent_bytes(played.graph)
    assert sum(by_rank) == 2 * (num_ranks - 1) * size_bytes
    share = 2 * (num_ranks - 1) * size_bytes / num_ranks
    assert all(abs(sent - share) <= 2 * num_ranks for sent in by_rank)
    if size_bytes % num_ranks == 0:
        assert set(by_rank) == {int(share)}


@given(num_ranks=st.integers(1, 9), size_bytes=sizes, kind=kinds)
@settings(deadline=None)
def test_other_algorithms_send_the_bytes_of_their_algorithm(num_ranks, size_bytes, kind):
    cluster = one_host(num_ranks)
    others = num_ranks - 1
    for collective, total in (
        (tree.all_reduce, 2 * others * size_bytes),
        (tree.broadcast, others * size_bytes),
        (ring.broadcast, others * size_bytes),
        (ring.reduce_scatter, others * size_bytes),
        (ring.all_gather, others * size_bytes),
        (find_algorithm(OpKind.ALL_TO_ALL, "pairwise").collective, others * size_bytes),
    ):
        played = play(collective, cluster, size_bytes=size_bytes, kind=kind)
        assert sum(sent_bytes(played.graph)) == total


def test_two_level_sends_little_between_hosts():
    cluster = Cluster.of_hosts(num_hosts=4, ranks_per_host=2, intra=FAST, inter=SLOW)
    played = play(two_level.all_reduce, cluster, size_bytes=8_000)
    assert sum(sent_bytes(played.graph)) == 4 * 2 * 8_000 + 2 * 2 * 3 * 4_000


def test_unequal_hosts_reduce_through_leaders():
    """Five members of a cluster with three ranks a host: one host has only two of them."""
    cluster = Cluster.of_hosts(num_hosts=2, ranks_per_host=3, intra=FAST, inter=SLOW)

    def of_five(call: CollectiveCall) -> list[int]:
        five = call.among(range(5), size_bytes=call.size_bytes)
        return [*two_level.all_reduce(five), call.after[5]]

    played = play(of_five, cluster, size_bytes=1_001)
    needs = contributions(played.graph, played.inputs)
    assert [needs[result] for result in played.results[:5]] == [0b11111] * 5


@pytest.mark.parametrize("name", ["gang", "ring"])
@pytest.mark.parametrize("kind", PortKind)
def test_equal_ranks_do_the_same_in_the_same_order(name, kind):
    collective = find_algorithm(OpKind.ALL_REDUCE, name).collective
    played = play(collective, one_host(4), size_bytes=4_000, kind=kind)
    first = rows_of_rank(played.graph, 0)
    assert all(rows_of_rank(played.graph, rank) == first for rank in range(1, 4))


def test_a_late_root_delays_listeners_and_a_late_listener_only_itself():
    broadcast = find_algorithm(OpKind.BROADCAST, "gang").collective
    late = play(broadcast, one_host(4), size_bytes=800, input_ns=[5, 5, 900_000, 5])
    end_ns = late.op_times().end_ns[late.results]
    assert end_ns[2] > 900_000
    assert (end_ns[[0, 1, 3]] < 100_000).all()


def test_unknown_algorithms_are_refused_with_the_known_ones():
    with pytest.raises(UsageError) as caught:
        find_algorithm(OpKind.ALL_REDUCE, "carrier-pigeon")
    assert "two-level" in caught.value.remedy
