"""Nothing beats the bound: not the optimum, no policy, no random order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from augury.core.plan.problem import Scheme
from augury.schedule import least_step as least_step_module
from augury.schedule.evaluate import step_ns
from augury.schedule.lower_bound import lower_bound
from augury.schedule.policies.registry import POLICIES
from tests.campaigns import campaign
from tests.schedule.exact import optimum

from .orders import orders
from .problems import problem_of, problems


@given(st.data(), problems())
@campaign(200)
def test_no_order_beats_the_bound(data, problem):
    order = data.draw(orders(problem))
    assert lower_bound(problem) <= step_ns(problem, order)


@given(problems(), st.sampled_from(POLICIES))
@campaign(200)
def test_no_policy_beats_the_bound(problem, policy):
    assert lower_bound(problem) <= step_ns(problem, policy.compile(problem))


@given(problems(max_gradients=5))
@campaign(150)
def test_the_optimum_does_not_beat_the_bound(problem):
    assert lower_bound(problem) <= step_ns(problem, optimum(problem))


@given(problems())
@campaign(150)
def test_kernel_and_python_agree(problem):
    kernel = lower_bound(problem)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(least_step_module, "_in_the_kernel", None)
        assert lower_bound(problem) == pytest.approx(kernel, abs=1)


def test_the_bound_has_one_message_after_the_last_release():
    problem = problem_of([10, 50], [100, 0], forward_ns=60, overhead_ns=5, latency_ns=3)
    assert lower_bound(problem) == 100 + 5 + 10 + 3 + 60


def test_the_bound_counts_overheads_of_necessary_messages():
    """20 ns of work released every 20 ns: one message would start at 80, two cost an overhead
    more; best is to send what is there at 20, or at 40, and then the rest."""
    problem = problem_of([20] * 5, [80, 60, 40, 20, 0], forward_ns=0, overhead_ns=10)
    assert lower_bound(problem) == 80 + 10 + 100 - 50
    assert step_ns(problem, optimum(problem)) == 140


def test_the_bound_of_a_parameter_server_is_that_of_a_pipeline():
    """100 ns of work, 4 ns an overhead: five messages, and one of 20 ns twice."""
    problem = problem_of([100], [0], forward_ns=0, overhead_ns=4, scheme=Scheme.PARAMETER_SERVER)
    assert lower_bound(problem) == 6 * 4 + 120
