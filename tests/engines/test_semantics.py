"""The replay semantics on cases small enough to compute by hand; every engine must agree."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import simpy

from augury.core.enums import Discipline
from augury.core.graph.graph import Graph
from augury.replay.op_times import NO_CAUSE, OpTimes, place_cause

from . import simpy_model
from .by_hand import NEVER, Bench, Engine, every_engine, every_scheduler, simpy_times

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
    assert simpy_times(_two_completions_at_once()) == [(0, 5), (0, 5), (5, 8), (8, 12)]


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
    # Rank 0 occupies its place for gang one, rank 1 for gang two; neither peer ever starts.
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


# -- causes --------------------------------------------------------------------------------


@every_scheduler
def test_cause_names_the_predecessor_that_finished_last(simulate: Callable[[Graph], OpTimes]):
    bench = Bench()
    bench.op(2)
    bench.op(5)
    bench.op(1, -1, 0, 1)
    assert simulate(bench.graph()).cause.tolist() == [NO_CAUSE, NO_CAUSE, 1]


@every_scheduler
def test_cause_names_the_smallest_of_equals(simulate: Callable[[Graph], OpTimes]):
    bench = Bench()
    a = bench.stream("a", width=2)
    bench.op(5, a)
    bench.op(5, a)
    bench.op(1, -1, 1, 0)
    bench.op(1, a, priority=1)
    assert simulate(bench.graph()).cause.tolist()[2:] == [0, place_cause(0)]


@every_scheduler
def test_cause_is_the_place_only_if_it_waited_for_it(simulate: Callable[[Graph], OpTimes]):
    bench = Bench()
    a = bench.stream("a")
    bench.op(5, a)
    bench.op(1, a)
    bench.op(1, a, 1)
    op_times = simulate(bench.graph())
    assert op_times.start_ns.tolist() == [0, 5, 6]
    # The last was ready just when the place became free: its predecessor is the cause.
    assert op_times.cause.tolist() == [NO_CAUSE, place_cause(0), 1]
    assert op_times.is_complete


@every_scheduler
def test_an_incomplete_schedule_says_so(simulate: Callable[[Graph], OpTimes]):
    bench = Bench(2)
    gang = bench.gang()
    first = bench.op(1, rank=0, gang=gang)
    bench.op(1, -1, first, rank=1, gang=gang)
    assert not simulate(bench.graph()).is_complete
