"""The replay semantics on cases small enough to compute by hand; every engine must agree."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import simpy

from augury.core.builder import GraphBuilder
from augury.core.graph import Graph
from augury.core.kinds import Discipline
from augury.replay import kernel, reference
from augury.replay.schedule import NO_CAUSE, Schedule, place_cause

from . import simpy_model

Times = list[tuple[int, int]]
Engine = Callable[[Graph], Times]

NEVER = (-1, -1)


def _times_of(simulate: Callable[[Graph], Schedule]) -> Engine:
    def times(graph: Graph) -> Times:
        schedule = simulate(graph)
        return list(zip(schedule.start_ns.tolist(), schedule.end_ns.tolist(), strict=True))

    return times


def _simpy_times(graph: Graph) -> Times:
    start, end = simpy_model.simulate(graph)
    return list(zip(start.tolist(), end.tolist(), strict=True))


_SCHEDULERS = [
    pytest.param(reference.simulate, id="reference"),
    pytest.param(kernel.simulate, id="kernel"),
]
_RATED = [
    pytest.param(_times_of(reference.simulate), id="reference"),
    pytest.param(_times_of(kernel.simulate), id="kernel"),
]
_ALL = [*_RATED, pytest.param(_simpy_times, id="simpy")]
every_engine = pytest.mark.parametrize("times", _ALL)
every_rated_engine = pytest.mark.parametrize("times", _RATED)
every_scheduler = pytest.mark.parametrize("simulate", _SCHEDULERS)


class Bench:
    """One rank unless told otherwise; operations are numbered in the order they are added."""

    def __init__(self, num_ranks: int = 1) -> None:
        self.builder = GraphBuilder()
        for _ in range(num_ranks):
            self.builder.rank()
        self.stream = self.builder.resource
        self.link = self.builder.shared_resource
        self.gang = self.builder.gang
        self.interfere = self.builder.interfere

    def op(
        self,
        work_ns: int,
        on: int = -1,
        *after: int,
        rank: int = 0,
        priority: int = 0,
        gang: int = -1,
    ) -> int:
        return self.builder.op(
            "op",
            rank=rank,
            work_ns=work_ns,
            resource=on,
            after=after,
            priority=priority,
            gang=gang,
        )

    def graph(self) -> Graph:
        return self.builder.build()


# -- exclusive resources -------------------------------------------------------------------


def _two_completions_at_once() -> Graph:
    """At 5 ns the first two end; the third has waited since 0, the fourth is ready just then and
    is more urgent."""
    bench = Bench()
    a, b = bench.stream("a"), bench.stream("b")
    bench.op(5, a)
    other = bench.op(5, b)
    bench.op(3, a, priority=1)
    bench.op(4, a, other, priority=0)
    return bench.graph()


@every_engine
def test_all_completions_of_a_time_stamp_are_drained_before_anything_is_granted(times: Engine):
    # Both completions at 5 count, so the urgent one is there when the place is given away:
    # 5 + 4 = 9, then the other until 9 + 3 = 12.
    assert times(_two_completions_at_once()) == [(0, 5), (0, 5), (9, 12), (5, 9)]


def test_granting_as_each_completes_would_be_something_else(monkeypatch: pytest.MonkeyPatch):
    # SimPy's own resource gives the place away as soon as it is released, before the second
    # completion of the same time stamp is seen: the waiting one goes first.
    monkeypatch.setattr(
        simpy_model,
        "_Place",
        lambda rounds, width: simpy.PriorityResource(rounds.env, capacity=width),
    )
    assert _simpy_times(_two_completions_at_once()) == [(0, 5), (0, 5), (5, 8), (8, 12)]


@every_engine
def test_smaller_priority_goes_first(times: Engine):
    bench = Bench()
    a = bench.stream("a")
    bench.op(1, a, priority=2)
    bench.op(1, a, priority=-1)
    bench.op(1, a, priority=1)
    assert times(bench.graph()) == [(2, 3), (0, 1), (1, 2)]


@every_engine
def test_equal_priorities_go_by_ready_time_then_id(times: Engine):
    bench = Bench()
    a = bench.stream("a")
    bench.op(10, a, priority=0)
    later = bench.op(3)
    sooner = bench.op(2)
    # Ready at 3, 2, 2; the stream is free at 10.
    bench.op(1, a, later, priority=1)
    bench.op(1, a, sooner, priority=1)
    bench.op(1, a, sooner, priority=1)
    assert times(bench.graph())[3:] == [(12, 13), (10, 11), (11, 12)]


@every_engine
def test_priority_overtakes_ready_time(times: Engine):
    bench = Bench()
    a = bench.stream("a")
    bench.op(10, a, priority=0)
    late = bench.op(9)
    bench.op(1, a, priority=2)
    bench.op(1, a, late, priority=1)
    assert times(bench.graph())[2:] == [(11, 12), (10, 11)]


@every_engine
def test_fifo_ignores_priority(times: Engine):
    bench = Bench()
    a = bench.stream("a", discipline=Discipline.FIFO)
    bench.op(10, a, priority=9)
    late = bench.op(9)
    # Ready at 9, 0, 0.
    bench.op(1, a, late, priority=0)
    bench.op(1, a, priority=5)
    bench.op(1, a, priority=3)
    assert times(bench.graph()) == [(0, 10), (0, 9), (12, 13), (10, 11), (11, 12)]


@every_engine
def test_width_two_runs_two_at_a_time(times: Engine):
    bench = Bench()
    a = bench.stream("a", width=2)
    for work_ns in (4, 1, 2, 1):
        bench.op(work_ns, a)
    # Places free at 1 (third: until 3), at 3 (fourth: until 4).
    assert times(bench.graph()) == [(0, 4), (0, 1), (1, 3), (3, 4)]


@every_engine
def test_both_places_freed_at_once_go_to_the_two_best(times: Engine):
    bench = Bench()
    a = bench.stream("a", width=2)
    bench.op(2, a, priority=0)
    bench.op(2, a, priority=0)
    for priority in (3, 1, 2):
        bench.op(1, a, priority=priority)
    assert times(bench.graph())[2:] == [(3, 4), (2, 3), (2, 3)]


@every_engine
def test_zero_work_on_a_resource_takes_another_round(times: Engine):
    bench = Bench()
    a, b = bench.stream("a"), bench.stream("b")
    zero = bench.op(0, a)
    bench.op(5, b, priority=1)
    bench.op(5, b, zero, priority=0)
    # The zero-work operation ends at 0, but after b's place was given away at 0.
    assert times(bench.graph()) == [(0, 0), (0, 5), (5, 10)]


@every_engine
def test_zero_work_without_a_resource_ends_within_the_drain(times: Engine):
    bench = Bench()
    b = bench.stream("b")
    zero = bench.op(0)
    again = bench.op(0, -1, zero)
    bench.op(5, b, priority=1)
    bench.op(5, b, again, priority=0)
    assert times(bench.graph()) == [(0, 0), (0, 0), (5, 10), (0, 5)]


@every_engine
def test_zero_work_ones_pass_a_place_on_at_one_time_stamp(times: Engine):
    bench = Bench()
    a = bench.stream("a")
    bench.op(3, a)
    bench.op(0, a, priority=1)
    bench.op(0, a, priority=1)
    bench.op(1, a, priority=1)
    assert times(bench.graph()) == [(0, 3), (3, 3), (3, 3), (3, 4)]


@every_engine
def test_what_a_round_of_zero_work_makes_ready_has_the_same_ready_time(times: Engine):
    bench = Bench()
    a, b = bench.stream("a"), bench.stream("b")
    bench.op(5, b)
    behind = 4
    bench.builder.edge(1 + 2, behind)
    bench.op(0, a)  # 1, ends in round two
    bench.op(1, b)  # 2, ready at 0
    bench.op(0, a)  # 3, ends in round three
    bench.op(1, b)  # 4, ready at 0 too, though in a later round
    assert times(bench.graph()) == [(0, 5), (0, 0), (5, 6), (0, 0), (6, 7)]


@every_engine
def test_without_a_resource_everything_runs_at_once(times: Engine):
    bench = Bench()
    bench.op(4)
    bench.op(4)
    bench.op(2, -1, 0, 1)
    assert times(bench.graph()) == [(0, 4), (0, 4), (4, 6)]


@every_engine
def test_an_edge_may_lead_to_a_smaller_id_and_be_given_twice(times: Engine):
    bench = Bench()
    a = bench.stream("a")
    bench.op(1, a)
    last = bench.op(2, a)
    bench.builder.edge(last, 0)
    bench.builder.edge(last, 0)
    assert times(bench.graph()) == [(2, 3), (0, 2)]


# -- gangs ---------------------------------------------------------------------------------


@every_engine
def test_a_gang_waits_for_its_last_member_and_ends_together(times: Engine):
    bench = Bench(2)
    a, b = bench.stream("a", rank=0), bench.stream("b", rank=1)
    busy = bench.op(6, b, rank=1)
    gang = bench.gang()
    bench.op(4, a, rank=0, gang=gang)
    bench.op(4, b, busy, rank=1, gang=gang)
    bench.op(1, a, rank=0, priority=1)
    # Granted at 0 and 6, both end at 6 + 4; the place on a is held from 0 to 10.
    assert times(bench.graph()) == [(0, 6), (0, 10), (6, 10), (10, 11)]


@every_engine
def test_a_gang_without_resources_starts_when_its_last_member_is_ready(times: Engine):
    bench = Bench(2)
    gang = bench.gang()
    first, second = bench.op(2, rank=0), bench.op(5, rank=1)
    bench.op(3, -1, first, rank=0, gang=gang)
    bench.op(3, -1, second, rank=1, gang=gang)
    assert times(bench.graph()) == [(0, 2), (0, 5), (2, 8), (5, 8)]


@every_engine
def test_a_gang_of_one_is_an_operation(times: Engine):
    bench = Bench()
    a = bench.stream("a")
    bench.op(2, a)
    bench.op(3, a, gang=bench.gang())
    assert times(bench.graph()) == [(0, 2), (2, 5)]


@every_engine
def test_a_zero_work_gang_that_assembles_in_the_drain_frees_its_place_there(times: Engine):
    bench = Bench(2)
    a = bench.stream("a", rank=0)
    gang = bench.gang()
    bench.op(0, a, rank=0, gang=gang)
    late = bench.op(5, rank=1)
    bench.op(0, -1, late, rank=1, gang=gang)
    bench.op(1, a, rank=0, priority=2)
    bench.op(1, a, 2, rank=0, priority=1)
    # At 5 the member without a place completes the gang within the drain: it ends there, and its
    # successor competes for the place in the same round.
    assert times(bench.graph()) == [(0, 5), (0, 5), (5, 5), (6, 7), (5, 6)]


@every_engine
def test_a_zero_work_gang_that_assembles_by_a_grant_ends_a_round_later(times: Engine):
    bench = Bench(2)
    a, b, c = bench.stream("a", rank=0), bench.stream("b", rank=1), bench.stream("c", rank=1)
    gang = bench.gang()
    bench.op(0, a, rank=0, gang=gang)
    bench.op(0, b, rank=1, gang=gang)
    bench.op(2, c, 0, rank=1, priority=0)
    bench.op(2, c, rank=1, priority=1)
    assert times(bench.graph()) == [(0, 0), (0, 0), (2, 4), (0, 2)]


@every_engine
def test_gangs_in_different_orders_deadlock(times: Engine):
    bench = Bench(2)
    a, b = bench.stream("a", rank=0), bench.stream("b", rank=1)
    one, two = bench.gang(), bench.gang()
    bench.op(1, a, rank=0, gang=one, priority=0)
    bench.op(1, a, rank=0, gang=two, priority=1)
    bench.op(1, b, rank=1, gang=one, priority=1)
    bench.op(1, b, rank=1, gang=two, priority=0)
    bench.op(3, rank=0)
    bench.op(3, -1, 0, rank=0)
    # Rank 0 holds its place for gang one, rank 1 for gang two; nobody ever comes.
    assert times(bench.graph()) == [(0, -1), NEVER, NEVER, (0, -1), (0, 3), NEVER]


@every_engine
def test_a_wider_stream_resolves_the_same_orders(times: Engine):
    bench = Bench(2)
    a, b = bench.stream("a", rank=0, width=2), bench.stream("b", rank=1)
    one, two = bench.gang(), bench.gang()
    bench.op(1, a, rank=0, gang=one, priority=0)
    bench.op(1, a, rank=0, gang=two, priority=1)
    bench.op(1, b, rank=1, gang=one, priority=1)
    bench.op(1, b, rank=1, gang=two, priority=0)
    assert times(bench.graph()) == [(0, 2), (0, 1), (1, 2), (0, 1)]


@every_engine
def test_a_gang_whose_member_waits_for_another_never_runs(times: Engine):
    bench = Bench(2)
    gang = bench.gang()
    first = bench.op(1, rank=0, gang=gang)
    bench.op(1, -1, first, rank=1, gang=gang)
    assert times(bench.graph()) == [(0, -1), NEVER]


@every_engine
def test_a_straggler_holds_up_every_rank(times: Engine):
    bench = Bench(3)
    computes = [bench.stream("compute", rank=r) for r in range(3)]
    streams = [bench.stream("communication", rank=r) for r in range(3)]
    backward = [bench.op(w, computes[r], rank=r) for r, w in enumerate((4, 9, 4))]
    gang = bench.gang()
    for r in range(3):
        bench.op(2, streams[r], backward[r], rank=r, gang=gang)
    assert times(bench.graph())[3:] == [(4, 11), (9, 11), (4, 11)]


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
def test_nobody_is_faster_than_alone(times: Engine):
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
def test_zero_work_on_a_link_slows_nobody(times: Engine):
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
    # Shares are 1/2 and 1/4: the gang takes 2 / (1/4) = 8. Until then the flow beside it on the
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


# -- causes --------------------------------------------------------------------------------


@every_scheduler
def test_cause_names_the_predecessor_that_finished_last(simulate: Callable[[Graph], Schedule]):
    bench = Bench()
    bench.op(2)
    bench.op(5)
    bench.op(1, -1, 0, 1)
    assert simulate(bench.graph()).cause.tolist() == [NO_CAUSE, NO_CAUSE, 1]


@every_scheduler
def test_cause_names_the_smallest_of_equals(simulate: Callable[[Graph], Schedule]):
    bench = Bench()
    a = bench.stream("a", width=2)
    bench.op(5, a)
    bench.op(5, a)
    bench.op(1, -1, 1, 0)
    bench.op(1, a, priority=1)
    assert simulate(bench.graph()).cause.tolist()[2:] == [0, place_cause(0)]


@every_scheduler
def test_cause_is_the_place_only_if_it_waited_for_it(simulate: Callable[[Graph], Schedule]):
    bench = Bench()
    a = bench.stream("a")
    bench.op(5, a)
    bench.op(1, a)
    bench.op(1, a, 1)
    schedule = simulate(bench.graph())
    assert schedule.start_ns.tolist() == [0, 5, 6]
    # The last was ready just when the place became free: its predecessor is the cause.
    assert schedule.cause.tolist() == [NO_CAUSE, place_cause(0), 1]
    assert schedule.is_complete


@every_scheduler
def test_an_incomplete_schedule_says_so(simulate: Callable[[Graph], Schedule]):
    bench = Bench(2)
    gang = bench.gang()
    first = bench.op(1, rank=0, gang=gang)
    bench.op(1, -1, first, rank=1, gang=gang)
    assert not simulate(bench.graph()).is_complete
