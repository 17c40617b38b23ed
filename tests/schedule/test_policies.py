"""Invariants of every policy on every problem: no byte is lost or sent twice, no message leaves
before its release, no link carries two messages at once, and no step is shorter than the bound."""

from __future__ import annotations

from collections import defaultdict
from math import ceil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from augury.core.enums import OpKind
from augury.core.graph.graph import NONE
from augury.core.plan.plan import LAST_OPS, Order
from augury.core.plan.plan_spec import verify_order
from augury.core.plan.problem import Problem, Scheme
from augury.schedule.evaluate import Outcome, evaluate
from augury.schedule.lower_bound import lower_bound
from augury.schedule.policies.bytescheduler import ByteScheduler
from augury.schedule.policies.ddp import Ddp, DdpBest
from augury.schedule.policies.dear import Dear
from augury.schedule.policies.p3 import P3
from augury.schedule.policies.policy import Policy
from augury.schedule.policies.prophet import Prophet
from augury.schedule.policies.registry import POLICIES, find_policy
from tests.campaigns import campaign
from tests.schedule.problems import problems

NAMES = [
    "fifo", "ddp", "ddp-best", "p3", "bytescheduler", "mg-wfbp", "dear", "prophet", "augury"
]  # fmt: skip

SMALL = (
    Ddp(bucket_caps_bytes=(10, 40)),
    DdpBest(sizes_bytes=(1, 20, 1000)),
    P3(slice_bytes=6),
    ByteScheduler(
        partitions_bytes=(5, 20),
        push_credits_bytes=(1, 30),
        reduce_credits_bytes=(10, 50),
    ),
    Dear(group_bytes=50),
    Prophet(partition_bytes=20),
)
"""With constants that cut small problems too."""

SMALL_PROBLEMS = problems(scales=st.just(1))


def test_nine_policies_are_found_by_name():
    assert sorted(policy.name for policy in POLICIES) == sorted(NAMES)
    assert all(find_policy(name).name == name for name in NAMES)


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
@campaign(150)
@given(problem=problems())
def test_every_byte_goes_once_over_links_that_carry_one_message(policy: Policy, problem: Problem):
    _check(policy, problem)


@pytest.mark.parametrize("policy", SMALL, ids=lambda policy: policy.name)
@campaign(150)
@given(problem=SMALL_PROBLEMS)
def test_every_byte_goes_once_where_constants_cut_small_gradients(policy: Policy, problem: Problem):
    _check(policy, problem)


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
@settings(max_examples=10)
@given(problem=problems())
def test_the_same_problem_gives_the_same_order(policy: Policy, problem: Problem):
    assert policy.compile(problem) == policy.compile(problem)


@settings(max_examples=60)
@given(problem=problems())
def test_ours_is_not_worse_than_the_others(problem: Problem):
    ours_ns = evaluate(problem, find_policy("augury").compile(problem)).step_ns
    for policy in POLICIES:
        theirs_ns = evaluate(problem, policy.compile(problem)).step_ns
        assert ours_ns <= 1.01 * theirs_ns + 1, policy.name


def _check(policy: Policy, problem: Problem) -> None:
    order = policy.compile(problem)
    assert order.policy == policy.name
    verify_order(order, problem)
    outcome = evaluate(problem, order)
    _nothing_leaves_before_it_can(problem, order, outcome)
    _links_keep_their_order_and_window(problem, order, outcome)
    _gradients_arrive_with_their_last_slice(problem, order, outcome)
    assert lower_bound(problem) <= outcome.step_ns
    assert outcome.step_ns >= problem.compute_ns
    assert outcome.waiting_ns <= outcome.step_ns - problem.compute_ns


def _nothing_leaves_before_it_can(problem: Problem, order: Order, outcome: Outcome) -> None:
    network = problem.network
    for nth, piece in enumerate(order.pieces):
        start_ns = int(outcome.start_ns[nth])
        assert start_ns >= piece.not_before_ns
        for part in piece.slices:
            assert start_ns >= problem.gradients[part.gradient].release_ns
        if piece.after != NONE:
            lag_ns = network.server_ns_per_byte * piece.size_bytes
            is_pull = piece.op is OpKind.PULL
            assert start_ns >= outcome.arrive_ns[piece.after] + (ceil(lag_ns) if is_pull else 0)
        hold_ns = network.overhead_ns + network.ns_per_byte * piece.size_bytes
        if piece.op in (OpKind.REDUCE_SCATTER, OpKind.ALL_GATHER):
            hold_ns /= 2
        assert outcome.end_ns[nth] == start_ns + ceil(hold_ns)
        assert outcome.arrive_ns[nth] == outcome.end_ns[nth] + network.latency_ns


def _links_keep_their_order_and_window(problem: Problem, order: Order, outcome: Outcome) -> None:
    of_link: dict[bool, list[int]] = defaultdict(list)
    for nth, piece in enumerate(order.pieces):
        start_ns = outcome.start_ns[nth]
        before = of_link[piece.op is OpKind.PULL]
        assert not before or outcome.end_ns[before[-1]] <= start_ns
        under_way_bytes = sum(
            order.pieces[other].size_bytes
            for other in before
            if outcome.arrive_ns[other] > start_ns
        )
        assert order.window_bytes is None or under_way_bytes < order.window_bytes
        before.append(nth)
    serves = problem.network.scheme is Scheme.PARAMETER_SERVER
    assert bool(of_link[True]) == serves


def _gradients_arrive_with_their_last_slice(
    problem: Problem, order: Order, outcome: Outcome
) -> None:
    arrived_ns = [0] * len(problem.gradients)
    for nth, piece in enumerate(order.pieces):
        if piece.op in LAST_OPS:
            for part in piece.slices:
                arrived_ns[part.gradient] = max(
                    arrived_ns[part.gradient], int(outcome.arrive_ns[nth])
                )
    assert outcome.arrived_ns.tolist() == arrived_ns
