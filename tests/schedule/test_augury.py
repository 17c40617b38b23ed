"""Our own policy: valid, deterministic, near the bound and the optimum, never worse than the
others."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from benchmarks.schedule.instances import instance
from hypothesis import given
from hypothesis import strategies as st

from augury.core.plan.plan_spec import verify_order
from augury.core.plan.problem import Scheme
from augury.schedule.evaluate import Evaluator, step_ns
from augury.schedule.lower_bound import lower_bound
from augury.schedule.policies.augury import Augury
from augury.schedule.policies.baselines import RIVALS
from augury.schedule.search.byte_line import Line, flat_line
from augury.schedule.search.robust_cost import scenarios_of
from augury.schedule.search.search import Search
from tests.campaigns import campaign
from tests.schedule.exact import optimum

from .problems import problem_of, problems


@given(problems())
@campaign(150)
def test_orders_are_valid_and_never_worse_than_others(problem):
    order = Augury().compile(problem)
    verify_order(order, problem)
    ours_ns = step_ns(problem, order)
    for rival in RIVALS:
        assert ours_ns <= 1.005 * step_ns(problem, rival.compile(problem))


@pytest.mark.parametrize("number", range(12))
def test_orders_are_near_the_bound_on_real_models(number):
    problem = instance(number)
    order = Augury().compile(problem)
    verify_order(order, problem)
    assert step_ns(problem, order) <= 1.03 * lower_bound(problem)


@pytest.mark.parametrize("scheme", Scheme)
def test_compilation_is_deterministic(scheme):
    problem = replace(instance(4), network=replace(instance(4).network, scheme=scheme))
    assert Augury().compile(problem) == Augury().compile(problem)


def test_the_optimum_is_not_beaten_where_slicing_gains_nothing():
    """The optimum sends whole gradients: ours may slice, but has no reason to here."""
    problem = problem_of(
        [30, 20, 40, 10],
        [100, 60, 30, 0],
        needs_ns=[0, 10, 20, 30],
        overhead_ns=5,
    )
    assert step_ns(problem, Augury().compile(problem)) == step_ns(problem, optimum(problem))


def test_no_more_messages_than_needed():
    """Everything arrives long before it is needed: one message for each of two far releases."""
    problem = problem_of([10, 10, 10], [1000, 3, 0], overhead_ns=50, forward_ns=5)
    assert len(Augury().compile(problem).pieces) == 2


def test_urgent_bytes_find_the_link_free():
    """A gap of 100 ns and 500 ns of non-urgent work: as much is sent as fits."""
    problem = problem_of([20, 500], [100, 0], needs_ns=[0, 300], forward_ns=600, overhead_ns=10)
    order = Augury().compile(problem)
    assert order.pieces[0].size_bytes == 90
    assert order.pieces[1].slices[0].gradient == 0
    # 90 ns of the 500 fit; then 20 with some more, then the rest, with two overheads.
    assert step_ns(problem, order) == 100 + 10 + 20 + 10 + 410 + 300


def test_free_slack_is_kept():
    """There is slack: if the network is slower than predicted, urgent bytes still find the link
    free."""
    problem = problem_of(
        [20, 60, 30], [1000, 900, 0], needs_ns=[0, 500, 900], forward_ns=1000, overhead_ns=10
    )
    order = Augury().compile(problem)
    assert step_ns(problem, order) == lower_bound(problem)
    slower = replace(problem, network=replace(problem.network, ns_per_byte=1.6))
    assert step_ns(slower, order) == lower_bound(slower)


def uncertain(problem, *, share: float, spread_ns: int):
    return replace(
        problem,
        network=replace(problem.network, spread=share),
        gradients=tuple(replace(gradient, spread_ns=spread_ns) for gradient in problem.gradients),
    )


@pytest.mark.parametrize("number", [0, 1, 9])
def test_the_mean_step_is_minimized_over_spread_times(number):
    problem = instance(number)
    spread = uncertain(problem, share=0.15, spread_ns=problem.backward_ns // 200)
    verify_order(Augury().compile(spread), spread)

    def mean_ns(order):
        return np.mean([step_ns(may_be, order) for may_be, _ in scenarios_of(spread)])

    careful, careless = Augury().compile(spread), Augury().compile(problem)
    assert mean_ns(careful) <= 1.002 * mean_ns(careless)


@given(st.data(), problems())
@campaign(100)
def test_lines_and_orders_evaluate_equally(data, problem):
    """The kernel evaluates a line directly and as an order made from it."""
    places = data.draw(st.permutations(range(len(problem.gradients))))
    sizes = np.array([problem.gradients[place].size_bytes for place in places], np.int64)
    items = np.array([problem.gradients[place].item_bytes for place in places], np.int64)
    line = Line(np.array(places, np.int32), np.cumsum(sizes), items)
    wanted = data.draw(st.lists(st.integers(0, int(sizes.sum())), max_size=6))
    cuts = line.aligned(np.array(wanted, np.int64))
    back = None
    if problem.network.scheme is Scheme.PARAMETER_SERVER:
        back = np.array(data.draw(st.permutations(range(len(cuts)))), np.int64)
    evaluator = Evaluator(problem)
    expected = evaluator.step_ns(flat_line(problem, line, cuts, back))
    assert evaluator.line_step_ns(line, cuts, back) == expected


def test_the_python_search_agrees_with_the_kernel(monkeypatch):
    problem = instance(2)
    expected = Search(problem).run()
    monkeypatch.setattr("augury.schedule.evaluate._native", None)
    monkeypatch.setattr("augury.schedule.least_step._in_the_kernel", None)
    found = Search(problem).run()
    assert found.cost_ns == expected.cost_ns
    assert found.cuts.tolist() == expected.cuts.tolist()
