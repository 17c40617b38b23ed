"""Lists of bucket sizes: the chosen one is optimal by exhaustive search."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, pairwise

from hypothesis import given, settings

from augury.core.plan.plan_spec import verify_order
from augury.core.plan.problem import Network, Problem
from augury.schedule.evaluate import step_ns
from augury.schedule.order_parts import exchanged, release_order, whole
from augury.schedule.policies.bucket_list import BucketList, bucket_caps
from augury.schedule.policies.ddp import order_of_buckets
from augury.schedule.policies.registry import POLICIES
from tests.schedule.problems import problems


def all_reduced(problem: Problem) -> Problem:
    network = problem.network
    return replace(
        problem,
        network=Network(overhead_ns=network.overhead_ns, ns_per_byte=network.ns_per_byte),
    )


@settings(max_examples=40)
@given(problems())
def test_no_other_bucket_list_is_better(problem: Problem) -> None:
    problem = all_reduced(problem)
    order = BucketList().compile(problem)
    verify_order(order, problem)
    coming = release_order(problem)[:9]
    count = len(coming)
    if count < len(problem.gradients):
        return
    best = step_ns(problem, order)
    for number in range(count):
        for cuts in combinations(range(1, count), number):
            bounds = [0, *cuts, count]
            messages = [
                tuple(whole(problem, place) for place in coming[begin:end])
                for begin, end in pairwise(bounds)
            ]
            other = replace(order, pieces=exchanged(problem, messages))
            # Each message's time is rounded up.
            assert best <= step_ns(problem, other) + count


@settings(max_examples=40)
@given(problems())
def test_caps_reproduce_the_bucket_list_in_ddp(problem: Problem) -> None:
    problem = all_reduced(problem)
    for policy in (*POLICIES, BucketList()):
        order = policy.compile(problem)
        caps = bucket_caps(problem, order)
        if caps is not None:
            again = order_of_buckets(order.policy, problem, caps)
            assert step_ns(problem, again) == step_ns(problem, order)
    assert bucket_caps(problem, BucketList().compile(problem)) is not None
    assert bucket_caps(problem, POLICIES[1].compile(problem)) is not None
