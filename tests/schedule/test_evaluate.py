"""Three implementations of the same semantics agree to the nanosecond: the reference, the kernel,
and the replay engine on a graph of the order."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

import augury
from augury.core.enums import OpKind
from augury.core.errors import InputError
from augury.core.plan.plan import Order, Piece
from augury.core.plan.problem import Problem, Scheme
from augury.schedule.evaluate import Evaluator, evaluate, step_ns
from augury.schedule.evaluate_reference import times_of
from augury.schedule.flat_arrays import flat_order, flat_problem
from augury.schedule.order_parts import whole
from augury.schedule.policies.registry import POLICIES
from tests.campaigns import campaign
from tests.schedule.scheduled_graph import build_scheduled

from .orders import orders
from .problems import problem_of, problems


@given(st.data(), problems())
@campaign(300)
def test_kernel_and_reference_agree(data, problem):
    order = data.draw(orders(problem))
    said = evaluate(problem, order)
    meant = times_of(flat_problem(problem), flat_order(order, problem.network))
    assert said.step_ns == meant.step_ns == step_ns(problem, order)
    assert said.waiting_ns == meant.waiting_ns
    assert said.start_ns.tolist() == meant.start_ns
    assert said.arrive_ns.tolist() == meant.arrive_ns
    assert said.arrived_ns.tolist() == meant.arrived_ns


@given(st.data(), problems(), st.integers(1, 2))
@campaign(150)
def test_the_engine_agrees_on_any_order(data, problem, num_ranks):
    order = data.draw(orders(problem))
    assert_replays_alike(problem, order, num_ranks)


@given(problems(max_gradients=5), st.sampled_from(POLICIES))
@campaign(100)
def test_the_engine_agrees_on_every_policy(problem, policy):
    assert_replays_alike(problem, policy.compile(problem), num_ranks=1)


def assert_replays_alike(problem: Problem, order: Order, num_ranks: int) -> None:
    graph = build_scheduled(problem, order, num_ranks=num_ranks)
    assert augury.replay(graph).step_ns == step_ns(problem, order)


@given(st.data(), problems())
@campaign(100)
def test_links_carry_one_released_message_at_a_time(data, problem):
    order = data.draw(orders(problem))
    said = evaluate(problem, order)
    for link in (False, True):
        places = [n for n, piece in enumerate(order.pieces) if (piece.op is OpKind.PULL) is link]
        for before, after in pairwise(places):
            assert said.end_ns[before] <= said.start_ns[after]
    for place, piece in enumerate(order.pieces):
        assert said.start_ns[place] >= piece.not_before_ns
        for part in piece.slices:
            assert said.start_ns[place] >= problem.gradients[part.gradient].release_ns
            assert said.arrived_ns[part.gradient] >= said.arrive_ns[place] or (
                piece.after == -1 and piece.op is not OpKind.ALL_REDUCE
            )
        if piece.after >= 0:
            assert said.start_ns[place] >= said.arrive_ns[piece.after]


def whole_tensors(problem: Problem, places: list[int], **options) -> Order:
    pieces = tuple(Piece(op=OpKind.ALL_REDUCE, slices=(whole(problem, place),)) for place in places)
    return Order(policy="by hand", pieces=pieces, **{"has_barrier": False, **options})


def test_forward_waits_only_for_its_parameters():
    problem = problem_of([10, 50], [100, 40], needs_ns=[0, 30], forward_ns=60, overhead_ns=2)
    said = evaluate(problem, whole_tensors(problem, [1, 0]))
    # 1 is sent at 40 and there at 92; 0 at 100, there at 112: forward from 112 to 172.
    assert (said.step_ns, said.waiting_ns) == (172, 12)
    assert said.arrived_ns.tolist() == [112, 92]
    assert said.link_busy_ns == 64
    late = evaluate(problem, whole_tensors(problem, [0, 1]))
    # 0 is there at 112, so forward reaches 142; 1 comes at 164.
    assert (late.step_ns, late.waiting_ns) == (194, 12 + 22)


def test_barrier_waits_for_everything():
    problem = problem_of([10, 50], [100, 40], needs_ns=[0, 30], forward_ns=60)
    said = evaluate(problem, whole_tensors(problem, [0, 1], has_barrier=True))
    assert (said.step_ns, said.waiting_ns) == (160 + 60, 60)


def test_updates_run_while_forward_waits():
    problem = problem_of([10, 50], [100, 0], needs_ns=[0, 30], forward_ns=60)
    slow = replace(
        problem,
        gradients=tuple(replace(gradient, update_ns=4) for gradient in problem.gradients),
    )
    # 1 is there at 50 and updated from 100 on, 0 is there at 110.
    assert step_ns(slow, whole_tensors(slow, [1, 0])) == 110 + 4 + 60
    # An update that has begun is not given up: 100 + 15 + 15.
    slower = replace(
        problem,
        gradients=tuple(replace(gradient, update_ns=15) for gradient in problem.gradients),
    )
    assert step_ns(slower, whole_tensors(slower, [1, 0])) == 115 + 15 + 60


def test_the_window_counts_bytes_in_flight():
    problem = problem_of([10, 10, 10], [0, 0, 0], latency_ns=100)
    assert evaluate(problem, whole_tensors(problem, [0, 1, 2])).start_ns.tolist() == [0, 10, 20]
    tight = whole_tensors(problem, [0, 1, 2], window_bytes=10)
    assert evaluate(problem, tight).start_ns.tolist() == [0, 110, 220]
    two = whole_tensors(problem, [0, 1, 2], window_bytes=11)
    assert evaluate(problem, two).start_ns.tolist() == [0, 10, 110]


def test_an_order_is_evaluated_under_another_problem():
    problem = problem_of([10, 50], [100, 40], forward_ns=60)
    order = whole_tensors(problem, [1, 0])
    slower = replace(problem, network=replace(problem.network, ns_per_byte=2.0))
    assert step_ns(problem, order) < step_ns(slower, order)


def test_a_clock_overflow_is_reported():
    problem = problem_of([1 << 50], [0], ns_per_byte=1e12)
    with pytest.raises(InputError, match="longer than the clock"):
        evaluate(problem, whole_tensors(problem, [0]))


def test_the_reference_is_used_without_the_kernel(monkeypatch):
    monkeypatch.setattr("augury.schedule.evaluate._native", None)
    problem = problem_of([10, 50], [100, 40], scheme=Scheme.ALL_REDUCE)
    order = whole_tensors(problem, [1, 0])
    flat = flat_order(order, problem.network)
    assert Evaluator(problem).step_ns(flat) == 210
    assert Evaluator(problem).outcome(flat).arrived_ns.tolist() == [110, 90]
