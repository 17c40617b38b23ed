"""Intervals hold the prediction and widen with whatever makes it less sure."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from augury.costs.interval import BETWEEN_RUNS, NINE_OF_TEN, interval_ns

STEPS = np.arange(30, dtype=np.int32)


def width(step_ns: list[float], *, step: np.ndarray = STEPS, model_error: float = 0.0) -> int:
    low, high = interval_ns(10**8, step, np.array(step_ns, dtype=np.int64), model_error=model_error)
    return high - low


def spread(share: float) -> list[float]:
    return [1e8 * (1 + share * (-1) ** i * (i % 7) / 7) for i in range(30)]


@given(
    st.integers(0, 10**10),
    st.lists(st.integers(0, 10**9), min_size=1, max_size=40),
    st.floats(0, 2),
    st.data(),
)
def test_it_holds_the_prediction(
    predicted: int, step_ns: list[int], error: float, data: st.DataObject
) -> None:
    steps = data.draw(
        st.lists(st.integers(0, 200), min_size=len(step_ns), max_size=len(step_ns), unique=True)
    )
    low, high = interval_ns(
        predicted, np.array(steps, dtype=np.int32), np.array(step_ns), model_error=error
    )
    assert 0 <= low <= predicted <= high


def test_steady_steps_differ_as_runs_do() -> None:
    assert width([1e8] * 30) == round(2 * NINE_OF_TEN * BETWEEN_RUNS * 10**8)


def test_it_widens_with_the_spread_of_steps() -> None:
    assert width(spread(0.0)) < width(spread(0.2)) < width(spread(0.8))


def test_it_narrows_with_their_number() -> None:
    few = interval_ns(10**8, STEPS[:6], np.array(spread(0.8)[:6], dtype=np.int64))
    assert width(spread(0.8)) < few[1] - few[0]


def test_it_widens_with_what_a_change_assumes() -> None:
    assert width([1e8] * 30) < width([1e8] * 30, model_error=0.02)
    assert width([1e8] * 30, model_error=0.02) < width([1e8] * 30, model_error=0.05)


def test_windows_that_differ_widen_it_and_equal_ones_tell_no_more_than_one() -> None:
    step = np.concatenate([STEPS[:10], STEPS[:10] + 20, STEPS[:10] + 40]).astype(np.int32)
    equal = width([1e8] * 30, step=step)
    apart = width([1e8] * 10 + [1.1e8] * 10 + [0.9e8] * 10, step=step)
    assert equal == width([1e8] * 30) < apart
    many = np.concatenate([STEPS[:10] + 20 * i for i in range(9)]).astype(np.int32)
    assert width(([1e8] * 10 + [1.1e8] * 10 + [0.9e8] * 10) * 3, step=many) < apart


def test_order_of_rows_does_not_matter() -> None:
    step = np.concatenate([STEPS[:15], STEPS[:15] + 40]).astype(np.int32)
    step_ns = np.array([1e8] * 15 + [1.2e8] * 15, dtype=np.int64)
    order = np.random.default_rng(0).permutation(30)
    assert interval_ns(10**8, step, step_ns) == interval_ns(10**8, step[order], step_ns[order])
