"""The measured step and its interval: drift, autocorrelation, outliers, ranks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from augury.core.measured_step import MAX_SEGMENTS, level, level_of_windows, over_ranks, student

MS = 1_000_000
NUM_SERIES = 300


def steps_of(dur_ns: np.ndarray) -> np.ndarray:
    return np.arange(1, len(dur_ns) + 1, dtype=np.int32)


def autocorrelated(rng: np.random.Generator, size: int, *, memory: float) -> np.ndarray:
    """Returns autocorrelated noise of standard deviation 1."""
    own = rng.standard_normal(size) * np.sqrt(1 - memory**2)
    own[0] = rng.standard_normal()
    for i in range(1, size):
        own[i] += memory * own[i - 1]
    return own


def covered(make, truth: float) -> float:
    """Returns the share of random series with the true level inside the interval."""
    rng = np.random.default_rng(7)
    hits = 0
    for _ in range(NUM_SERIES):
        dur_ns = make(rng)
        low, high = level(steps_of(dur_ns), dur_ns).interval_ns
        hits += low <= truth <= high
    return hits / NUM_SERIES


def test_the_level_is_the_median_whatever_a_few_steps_do() -> None:
    dur_ns = np.full(200, 100 * MS)
    dur_ns[::20] = 900 * MS
    found = level(steps_of(dur_ns), dur_ns)
    assert found.value_ns == pytest.approx(100 * MS)
    low, high = found.interval_ns
    assert low < 100 * MS < high < 105 * MS


@pytest.mark.parametrize("spread", [0.01, 0.1, 0.3])
def test_the_interval_covers_independent_steps(spread: float) -> None:
    truth = 100 * MS
    share = covered(lambda rng: truth * np.exp(spread * rng.standard_normal(200)), truth)
    assert share > 0.87


def test_the_interval_covers_steps_that_resemble_their_neighbours() -> None:
    """A correlation over about ten steps: the error of as many independent steps would be three
    times too small."""
    truth = 100 * MS
    share = covered(lambda rng: truth * np.exp(0.1 * autocorrelated(rng, 400, memory=0.9)), truth)
    assert share > 0.85


def test_drift_widens_the_interval() -> None:
    rng = np.random.default_rng(1)
    noise = np.exp(0.01 * rng.standard_normal(300))
    steady = level(steps_of(noise), 100 * MS * noise)
    drifting = 100 * MS * noise * np.linspace(0.8, 1.2, 300)
    found = level(steps_of(noise), drifting)
    assert found.error > 4 * steady.error
    assert found.drift == pytest.approx(0.12, abs=0.04)
    assert steady.drift < 0.015


def test_chance_within_stretches_is_not_taken_for_drift() -> None:
    rng = np.random.default_rng(2)
    wild = 100 * MS * np.exp(0.4 * rng.standard_normal(400))
    assert level(steps_of(wild), wild).drift < 0.1


def test_windows_count_by_their_number_and_not_by_their_steps() -> None:
    """Steps within one window are alike; windows differ."""
    rng = np.random.default_rng(3)
    step = np.concatenate([np.arange(5) + 50 * i for i in range(6)]).astype(np.int32)
    truth, hits = 100 * MS, 0
    for _ in range(NUM_SERIES):
        each = np.repeat(rng.standard_normal(6) * 0.05, 5) + 0.005 * rng.standard_normal(30)
        low, high = level_of_windows(step, truth * np.exp(each)).interval_ns
        hits += low <= truth <= high
    assert hits / NUM_SERIES > 0.85


def test_few_stretches_have_wide_quantiles() -> None:
    assert student(1) > 6
    assert student(2) == pytest.approx(2.92, abs=0.01)
    assert student(7) == pytest.approx(1.895, abs=0.02)
    assert student(float("inf")) == pytest.approx(1.645, abs=0.001)
    ordered = [student(freedom) for freedom in (1, 1.5, 3, 9, 40, 1e6)]
    assert ordered == sorted(ordered, reverse=True)


@given(st.lists(st.integers(1, 10**12), min_size=1, max_size=60))
def test_the_interval_holds_the_level(durations: list[int]) -> None:
    dur_ns = np.array(durations)
    found = level(steps_of(dur_ns), dur_ns)
    low, high = found.interval_ns
    assert low <= found.value_ns * (1 + 1e-9) + 1
    assert found.value_ns <= high * (1 + 1e-9) + 1
    assert found.freedom <= MAX_SEGMENTS + 1


def test_a_step_is_the_mean_over_ranks_that_take_turns() -> None:
    """One is ahead where the other is behind, by turns."""
    step = np.repeat(np.arange(1, 41), 2).astype(np.int32)
    rank = np.tile([0, 1], 40).astype(np.int32)
    dur_ns = 100 * MS + 7 * MS * (1 - 2 * ((step + rank) % 2))
    found, means = over_ranks(rank, step, dur_ns)
    assert found.tolist() == list(range(1, 41))
    assert means == pytest.approx(100 * MS)


def test_a_step_is_the_slowest_ranks_where_ranks_never_wait() -> None:
    step = np.repeat(np.arange(1, 41), 2).astype(np.int32)
    rank = np.tile([0, 1], 40).astype(np.int32)
    _, means = over_ranks(rank, step, np.where(rank == 0, 80 * MS, 120 * MS))
    assert means == pytest.approx(120 * MS)


def test_steps_that_some_ranks_did_not_see_do_not_count() -> None:
    rank = np.array([0, 0, 0, 1, 1], dtype=np.int32)
    step = np.array([1, 2, 3, 2, 3], dtype=np.int32)
    found, _ = over_ranks(rank, step, np.array([9, 5, 5, 5, 5]) * MS)
    assert found.tolist() == [2, 3]
