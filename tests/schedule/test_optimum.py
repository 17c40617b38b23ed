"""The optimum of small cases equals exhaustive search."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from augury.core.errors import UsageError
from augury.core.plan.plan import Order, Slice
from augury.core.plan.plan_spec import verify_order
from augury.schedule.evaluate import step_ns
from augury.schedule.lower_bound import lower_bound
from augury.schedule.order_parts import exchanged, whole
from augury.schedule.policies.fifo import Fifo
from tests.schedule.exact import optimum

from .problems import problem_of, problems


def groupings(slices: tuple[Slice, ...]) -> Iterator[list[tuple[Slice, ...]]]:
    """All ways to send the slices as consecutive messages."""
    if not slices:
        yield []
    for count in range(1, len(slices) + 1):
        for message in combinations(slices, count):
            left = tuple(part for part in slices if part not in message)
            for others in groupings(left):
                yield [message, *others]


@given(st.data(), problems(max_gradients=4))
@settings(max_examples=60, deadline=None)
def test_exhaustive_search_finds_nothing_better(data, problem):
    slices = [whole(problem, place) for place in range(len(problem.gradients))]
    if data.draw(st.booleans()) and len(slices) < 4:
        slices[:1] = halves(problem)
    best = optimum(problem, slices)
    verify_order(best, problem)
    assert step_ns(problem, best) == min(
        step_ns(
            problem,
            Order(policy="any", pieces=exchanged(problem, messages), has_barrier=False),
        )
        for messages in groupings(tuple(slices))
    )


def halves(problem) -> list[Slice]:
    gradient = problem.gradients[0]
    first = gradient.size_bytes // gradient.item_bytes // 2 * gradient.item_bytes
    return [
        Slice(gradient=0, offset_bytes=offset_bytes, size_bytes=size_bytes)
        for offset_bytes, size_bytes in ((0, first), (first, gradient.size_bytes - first))
        if size_bytes
    ]


def test_nine_slices_are_accepted():
    problem = problem_of(
        [30, 5, 40, 10, 20, 60, 10, 5, 80],
        [90, 80, 70, 60, 50, 30, 20, 10, 0],
        needs_ns=[0, 10, 20, 30, 40, 50, 60, 70, 80],
        overhead_ns=7,
    )
    best_ns = step_ns(problem, optimum(problem))
    assert lower_bound(problem) <= best_ns
    assert best_ns < step_ns(problem, Fifo().compile(problem))


def test_more_slices_are_refused():
    problem = problem_of([1] * 11, [0] * 11)
    with pytest.raises(UsageError, match="best order of 11 slices"):
        optimum(problem)
