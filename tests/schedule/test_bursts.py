"""Bursts are found for all sizes and gaps, and only where there are bursts."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from augury.core.plan.problem import Problem
from augury.schedule.policies.prophet import Prophet
from augury.schedule.search.bursts import find_bursts

from .problems import problem_of


def releasing(bursts: list[int], gaps_us: list[float], *, within_us: float, seed: int) -> Problem:
    """Bursts of so many gradients, so far apart; within each, about ``within_us`` from one to the
    next."""
    chance = random.Random(seed)
    releases_ns: list[int] = []
    now_us = 0.0
    for size, gap_us in zip(bursts, gaps_us, strict=True):
        now_us += gap_us * chance.uniform(0.8, 1.2)
        for _ in range(size):
            now_us += within_us * chance.uniform(0.2, 2)
            releases_ns.append(int(1000 * now_us))
    return problem_of([4] * len(releases_ns), releases_ns[::-1])


def sizes(problem: Problem) -> list[int]:
    return [len(burst.gradients) for burst in find_bursts(problem)]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    ("bursts", "gaps_us"),
    [
        ([13, 13, 13, 14, 13, 13, 15, 12, 15, 13, 13, 10], [30_000] * 12),  # bulk execution
        ([40, 90, 31], [50_000, 20_000, 90_000]),  # compiled graphs
        ([4] * 24, [2_000] * 24),  # units of FSDP
        ([1, 3, 2, 9, 30, 2, 20], [900, 3_000, 8_000, 1_000, 20_000, 1_500, 5_000]),  # buckets
    ],
)
def test_bursts_are_found(bursts, gaps_us, seed):
    assert sizes(releasing(bursts, gaps_us, within_us=20, seed=seed)) == bursts


def test_one_very_long_gap_hides_no_others():
    """The published rule cuts only where a gap exceeds twice the mean."""
    gaps_us = [2_000.0] * 10 + [900_000.0] + [2_000.0] * 10
    problem = releasing([5] * 21, gaps_us, within_us=10, seed=1)
    assert sizes(problem) == [5] * 21
    assert len(Prophet().bursts(problem)) == 2


def test_evenly_released_gradients_are_no_bursts():
    chance = random.Random(3)
    now_ns, releases_ns = 0, []
    for _ in range(100):
        now_ns += int(1e6 * chance.lognormvariate(0, 0.5))
        releases_ns.append(now_ns)
    assert sizes(problem_of([4] * 100, releases_ns[::-1])) == [1] * 100


def test_gaps_below_the_noise_are_ignored():
    """Gaps of 1 us and 30 us, where single steps differ by 100 us; and one of 50 ms."""
    releases_us = [0, 1, 2, 32, 33, 34, 64, 65, 50_000, 50_001, 50_030, 50_031]
    problem = problem_of([4] * 12, [1000 * release_us for release_us in releases_us[::-1]])
    noisy = replace(
        problem,
        gradients=tuple(replace(gradient, spread_ns=100_000) for gradient in problem.gradients),
    )
    assert sizes(noisy) == [8, 4]


def test_simultaneous_releases_are_one_burst():
    (burst,) = find_bursts(problem_of([4, 4, 4], [7, 7, 7]))
    assert (burst.begin_ns, burst.end_ns) == (7, 7)
    assert burst.gradients == (2, 1, 0)
