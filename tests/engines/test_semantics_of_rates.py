"""Sharing and interference on cases small enough to compute by hand; kernel and reference."""

from __future__ import annotations

from augury.core.enums import Discipline

from .by_hand import Bench, Engine, every_rated_engine

# -- shared resources ----------------------------------------------------------------------


@every_rated_engine
def test_two_flows_that_start_together_take_twice_as_long(times: Engine):
    bench = Bench()
    link = bench.link("link", capacity=1)
    bench.op(10, link)
    bench.op(10, link)
    # Half the rate each: 10 / 0.5.
    assert times(bench.graph()) == [(0, 20), (0, 20)]


@every_rated_engine
def test_a_flow_that_joins_slows_the_one_there(times: Engine):
    bench = Bench()
    link = bench.link("link", capacity=1)
    bench.op(10, link)
    wait = bench.op(5)
    bench.op(10, link, wait)
    # First: 5 done at 5, the other 5 at half rate until 15. Second: 5 done at 15, then alone
    # until 20.
    assert times(bench.graph()) == [(0, 15), (0, 5), (5, 20)]


@every_rated_engine
def test_a_pool_of_two_slows_only_beyond_two(times: Engine):
    bench = Bench()
    pool = bench.link("pool", capacity=2)
    bench.op(6, pool)
    bench.op(6, pool)
    wait = bench.op(2)
    bench.op(6, pool, wait)
    bench.op(2, pool, wait)
    # 0 to 2: two at full rate (4 left). From 2 four at half rate; the short one ends at 6, when
    # the first two have 2 left and the third 4: three at 2/3, so the first two end at 9, the
    # third has 2 left and ends alone at 11. A rate of 2/3 is not exact in binary.
    (_, first), (_, second), _, (start, third), short = times(bench.graph())
    assert short == (2, 6)
    assert (start, first, second) == (2, second, first)
    assert first in (9, 10)
    assert third in (11, 12)


@every_rated_engine
def test_no_operation_is_faster_than_alone(times: Engine):
    bench = Bench()
    pool = bench.link("pool", capacity=4)
    bench.op(6, pool)
    assert times(bench.graph()) == [(0, 6)]


@every_rated_engine
def test_a_capacity_below_one_slows_even_a_single_flow(times: Engine):
    bench = Bench()
    link = bench.link("link", capacity=0.25)
    bench.op(6, link)
    assert times(bench.graph()) == [(0, 24)]


@every_rated_engine
def test_a_shared_resource_of_limited_width_lets_the_third_wait(times: Engine):
    bench = Bench()
    link = bench.link("link", capacity=1, width=2)
    bench.op(4, link, priority=0)
    bench.op(4, link, priority=2)
    bench.op(4, link, priority=1)
    # First and third share until 8, then the second is alone.
    assert times(bench.graph()) == [(0, 8), (8, 12), (0, 8)]


@every_rated_engine
def test_fifo_on_a_shared_resource(times: Engine):
    bench = Bench()
    link = bench.link("link", capacity=1, width=1, discipline=Discipline.FIFO)
    bench.op(4, link, priority=2)
    bench.op(4, link, priority=1)
    assert times(bench.graph()) == [(0, 4), (4, 8)]


@every_rated_engine
def test_zero_work_on_a_link_slows_no_operation(times: Engine):
    bench = Bench()
    link = bench.link("link", capacity=1)
    wait = bench.op(3)
    bench.op(10, link)
    bench.op(0, link, wait)
    assert times(bench.graph()) == [(0, 3), (0, 10), (3, 3)]


@every_rated_engine
def test_a_remainder_is_rounded_up_to_the_next_nanosecond(times: Engine):
    bench = Bench()
    link = bench.link("link", capacity=1)
    bench.op(1, link)
    wait = bench.op(1)
    bench.op(3, link, wait)
    bench.op(2, link, wait)
    # From 1 both at half rate: the shorter ends at 5 with the longer having 1 left: 6.
    assert times(bench.graph()) == [(0, 1), (0, 1), (1, 6), (1, 5)]
    bench = Bench()
    link = bench.link("link", capacity=0.75)
    bench.op(1, link)
    # 1 / 0.75 = 1.33
    assert times(bench.graph()) == [(0, 2)]


# -- interference --------------------------------------------------------------------------


@every_rated_engine
def test_compute_is_slowed_while_communication_progresses(times: Engine):
    bench = Bench()
    compute, comm = bench.stream("compute"), bench.stream("communication")
    bench.interfere(victim=compute, aggressor=comm, rate=0.5)
    bench.op(10, compute)
    bench.op(4, comm)
    # 4 ns at half rate do 2; the other 8 at full rate: 12.
    assert times(bench.graph()) == [(0, 12), (0, 4)]


@every_rated_engine
def test_interference_begins_and_ends_with_the_aggressor(times: Engine):
    bench = Bench()
    compute, comm = bench.stream("compute"), bench.stream("communication")
    bench.interfere(victim=compute, aggressor=comm, rate=0.25)
    bench.op(10, compute)
    wait = bench.op(3)
    bench.op(8, comm, wait)
    # 3 done at 3; 8 ns at a quarter do 2; 5 left at 11: 16.
    assert times(bench.graph()) == [(0, 16), (0, 3), (3, 11)]


@every_rated_engine
def test_several_rules_multiply(times: Engine):
    bench = Bench()
    compute, comm, copy = bench.stream("compute"), bench.stream("comm"), bench.stream("copy")
    bench.interfere(victim=compute, aggressor=comm, rate=0.5)
    bench.interfere(victim=compute, aggressor=copy, rate=0.5)
    bench.op(10, compute)
    bench.op(4, comm)
    bench.op(8, copy)
    # 4 ns at a quarter do 1, 4 at half do 2, 7 left at 8: 15.
    assert times(bench.graph()) == [(0, 15), (0, 4), (0, 8)]


@every_rated_engine
def test_two_operations_on_the_aggressor_slow_no_more_than_one(times: Engine):
    bench = Bench()
    compute, comm = bench.stream("compute"), bench.stream("comm", width=2)
    bench.interfere(victim=compute, aggressor=comm, rate=0.5)
    bench.op(10, compute)
    bench.op(4, comm)
    bench.op(4, comm)
    assert times(bench.graph()) == [(0, 12), (0, 4), (0, 4)]


@every_rated_engine
def test_mutual_interference(times: Engine):
    bench = Bench()
    compute, comm = bench.stream("compute"), bench.stream("comm")
    bench.interfere(victim=compute, aggressor=comm, rate=0.5)
    bench.interfere(victim=comm, aggressor=compute, rate=0.25)
    bench.op(10, compute)
    bench.op(4, comm)
    # comm at a quarter: 16 ns for 4, in which compute does 8; 2 left at 16: 18.
    assert times(bench.graph()) == [(0, 18), (0, 16)]


@every_rated_engine
def test_zero_work_on_the_aggressor_does_not_interfere(times: Engine):
    bench = Bench()
    compute, comm = bench.stream("compute"), bench.stream("comm")
    bench.interfere(victim=compute, aggressor=comm, rate=0.5)
    bench.op(10, compute)
    wait = bench.op(4)
    bench.op(0, comm, wait)
    assert times(bench.graph()) == [(0, 10), (0, 4), (4, 4)]


# -- gangs on shared resources, and combinations -------------------------------------------


@every_rated_engine
def test_a_gang_that_waits_for_peers_does_not_interfere(times: Engine):
    bench = Bench(2)
    compute, comm = bench.stream("compute", rank=0), bench.stream("comm", rank=0)
    other = bench.stream("comm", rank=1)
    bench.interfere(victim=compute, aggressor=comm, rate=0.5)
    bench.op(10, compute, rank=0)
    late = bench.op(6, rank=1)
    gang = bench.gang()
    bench.op(4, comm, rank=0, gang=gang)
    bench.op(4, other, late, rank=1, gang=gang)
    # Full rate until the gang assembles at 6; 4 ns at half rate do 2; 2 left at 10: 12.
    assert times(bench.graph()) == [(0, 12), (0, 6), (0, 10), (6, 10)]


@every_rated_engine
def test_a_gang_that_waits_for_peers_takes_no_share(times: Engine):
    bench = Bench(2)
    link, other = bench.link("link", rank=0, capacity=1), bench.stream("comm", rank=1)
    bench.op(10, link, rank=0)
    late = bench.op(6, rank=1)
    gang = bench.gang()
    bench.op(4, link, rank=0, gang=gang)
    bench.op(4, other, late, rank=1, gang=gang)
    # The flow has 4 left when the gang assembles at 6; from then both at half rate: 14.
    assert times(bench.graph()) == [(0, 14), (0, 6), (0, 14), (6, 14)]


@every_rated_engine
def test_a_waiting_gang_takes_a_place_of_a_shared_resource(times: Engine):
    bench = Bench(2)
    link = bench.link("link", rank=0, capacity=1, width=1)
    late = bench.op(6, rank=1)
    gang = bench.gang()
    bench.op(4, link, rank=0, gang=gang)
    bench.op(4, -1, late, rank=1, gang=gang)
    bench.op(1, link, rank=0, priority=1)
    assert times(bench.graph()) == [(0, 6), (0, 10), (6, 10), (10, 11)]


@every_rated_engine
def test_a_gang_over_two_links_progresses_at_the_slower_share(times: Engine):
    bench = Bench(2)
    fast = bench.link("fast", rank=0, capacity=1)
    slow = bench.link("slow", rank=1, capacity=0.5)
    gang = bench.gang()
    bench.op(2, fast, rank=0, gang=gang)
    bench.op(2, slow, rank=1, gang=gang)
    bench.op(100, fast, rank=0)
    bench.op(100, slow, rank=1)
    # Shares are 1/2 and 1/4: the gang takes 2 / (1/4) = 8. Until then the other flow on the
    # fast link, which gets half although the gang uses less, does 4: 8 + 96 = 104. The flow on
    # the slow one does 2, then goes at 1/2: 8 + 98 / 0.5 = 204.
    assert times(bench.graph()) == [(0, 8), (0, 8), (0, 104), (0, 204)]


@every_rated_engine
def test_two_members_on_one_link_take_two_shares(times: Engine):
    bench = Bench(2)
    link = bench.link("switch", capacity=1)
    gang = bench.gang()
    bench.op(3, link, rank=0, gang=gang)
    bench.op(3, link, rank=1, gang=gang)
    assert times(bench.graph()) == [(0, 6), (0, 6)]


@every_rated_engine
def test_a_gang_is_slowed_by_interference_on_one_of_its_ranks(times: Engine):
    bench = Bench(2)
    compute = bench.stream("compute", rank=1)
    comms = [bench.stream("comm", rank=r) for r in range(2)]
    bench.interfere(victim=comms[1], aggressor=compute, rate=0.5)
    gang = bench.gang()
    bench.op(6, comms[0], rank=0, gang=gang)
    bench.op(6, comms[1], rank=1, gang=gang)
    bench.op(4, compute, rank=1)
    # 4 ns at half rate do 2, 4 left: 8.
    assert times(bench.graph()) == [(0, 8), (0, 8), (0, 4)]


@every_rated_engine
def test_sharing_and_interference_multiply(times: Engine):
    bench = Bench()
    link, copy = bench.link("link", capacity=1), bench.stream("copy")
    bench.interfere(victim=link, aggressor=copy, rate=0.5)
    bench.op(4, link)
    bench.op(4, link)
    bench.op(8, copy)
    # Half of a half for 8 ns: 2 done; then half rate, 2 left: 8 + 4.
    assert times(bench.graph()) == [(0, 12), (0, 12), (0, 8)]


@every_rated_engine
def test_a_shared_link_as_aggressor_interferes_as_long_as_one_flow_progresses(times: Engine):
    bench = Bench()
    compute, link = bench.stream("compute"), bench.link("link", capacity=1)
    bench.interfere(victim=compute, aggressor=link, rate=0.5)
    bench.op(10, compute)
    bench.op(2, link)
    bench.op(4, link)
    # The flows end at 4 and 6; until 6 compute does 3, 7 left: 13.
    assert times(bench.graph()) == [(0, 13), (0, 4), (0, 6)]


@every_rated_engine
def test_a_change_of_rate_lasts_over_a_place_that_changes_hands(times: Engine):
    bench = Bench()
    compute, comm = bench.stream("compute"), bench.stream("comm")
    bench.interfere(victim=compute, aggressor=comm, rate=0.5)
    bench.op(4, compute)
    bench.op(4, compute)
    bench.op(3, comm)
    bench.op(3, comm)
    bench.op(2, comm)
    # comm is busy from 0 to 8 without a gap: the first ends at 8, the second at full rate at 12.
    assert times(bench.graph()) == [(0, 8), (8, 12), (0, 3), (3, 6), (6, 8)]
