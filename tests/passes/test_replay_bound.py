"""No order is replayed or evaluated below the bound that its table prints."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from augury.core.plan.plan import Order
from augury.core.plan.problem import Gradient, Network, Problem
from augury.core.results.schedule import Curve
from augury.predict.assess_policies import MAX_POINTS
from augury.predict.schedule_assess import Assessment, assess
from augury.predict.schedule_case import bare_case, graph_case
from augury.replay.run import replay
from augury.schedule.evaluate import step_ns
from augury.schedule.policies.registry import POLICIES, find_policy
from tests.passes.recorded import recorded
from tests.passes.test_scheduled import NEEDS, SIZES, orders

BUCKETS = (((0,), (1, 2, 3)), ((0, 1), (2, 3)), ((0, 1, 2, 3),))


def case_of(**options: Any) -> Any:
    options = {"sizes": SIZES, "num_steps": 5} | options
    graph, _ = recorded(**options)
    return graph_case(graph, [], NEEDS, [])


@st.composite
def cases(draw: st.DrawFn, *, is_steady: bool) -> Any:
    num_ranks, num_steps = draw(st.integers(1, 3)), draw(st.sampled_from([1, 2, 5, 6]))
    vary = {}
    if not is_steady:
        slower = st.floats(1.0, 1.3)
        vary = {(r, s): draw(slower) for r in range(num_ranks) for s in range(num_steps)}
    return case_of(
        num_ranks=num_ranks,
        num_steps=num_steps,
        buckets=draw(st.sampled_from(BUCKETS)),
        ns_per_byte=draw(st.floats(0.3, 8)),
        compute_rate=draw(st.sampled_from([1.0, 0.8, 0.5])),
        transfer_rate=draw(st.sampled_from([1.0, 0.7])),
        unseen=draw(st.integers(0, 100_000)),
        vary=vary,
    )


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_no_replayed_order_beats_the_bound(data: st.DataObject) -> None:
    case = data.draw(cases(is_steady=True))
    order: Order = data.draw(orders(case.problem))
    assert case.bound_ns <= replay(case.scheduled.follow(order)).step_ns
    assert case.bound_ns <= step_ns(case.problem_of(order), order)


@settings(max_examples=4, deadline=None)
@given(cases(is_steady=False))
def test_no_row_of_a_table_is_below_its_bound(case: Any) -> None:
    """Steps that differ: the bound is a median, and so is the replayed step."""
    check(assess(case, POLICIES))


def check(found: Assessment) -> None:
    result = found.result()
    for one in result.policies:
        assert result.bound_ns <= min(one.step_ns, one.evaluated_step_ns)
        assert one.gap_pct >= 0
        assert one.gap_pct == pytest.approx(100 * (one.step_ns / result.bound_ns - 1))
        assert_released_first(result.released, one.transferred)
    for piece in result.pieces:
        assert piece.release_ns <= piece.start_ns <= piece.end_ns <= piece.arrive_ns
    foretold = found.plan().foretold
    assert foretold is not None
    assert foretold.bound_ns == result.bound_ns
    assert 0 <= result.headroom_pct <= 100


def assert_released_first(released: Curve, arrived: Curve) -> None:
    for at_ns, size_bytes in arrived:
        assert size_bytes <= max(
            (held for when_ns, held in released if when_ns <= at_ns), default=0
        )


def test_thinned_curves_keep_their_order() -> None:
    """5,000 gradients that arrive as soon as they are released."""
    gradients = tuple(
        Gradient(name=str(i), size_bytes=4, release_ns=5_000 - i, need_ns=0) for i in range(5_000)
    )
    problem = Problem(
        gradients=gradients, backward_ns=5_000, forward_ns=1, network=Network(ns_per_byte=0.0)
    )
    case = bare_case(problem, 2)
    result = assess(case, [find_policy("fifo")]).result()
    assert len(result.released) <= MAX_POINTS
    assert_released_first(result.released, result.policies[0].transferred)


def test_the_bound_is_near_where_nothing_interferes() -> None:
    """It would be no use if it were only the compute."""
    case = case_of(buckets=BUCKETS[0], ns_per_byte=4.0)
    found = assess(case, POLICIES)
    compute_ns = case.problem.compute_ns
    assert case.bound_ns > 1.1 * compute_ns
    assert case.bound_ns > 0.8 * found.best.result.step_ns
