"""The interval of a prediction covers the run that its windows were recorded in."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from augury.core.ledger import Ledger
from augury.costs.prediction_interval import (
    BETWEEN_RUNS,
    SIGMAS_OF_90_PCT,
    combine_errors,
    interval_ns,
    note_unrepresentative,
    representation,
)

MS = 1_000_000
WINDOWS = np.concatenate([np.arange(4) + 60 * i for i in range(6)]).astype(np.int32)
PLAIN = np.setdiff1d(np.arange(400), WINDOWS).astype(np.int32)
NONE = np.zeros(0, dtype=np.int32)


def run_of(recorded_ns, plain_ns=None, *, step=WINDOWS):
    recorded = np.broadcast_to(recorded_ns, len(step)).astype(np.float64)
    if plain_ns is None:
        return representation(step, recorded, NONE, NONE)
    return representation(step, recorded, PLAIN, np.broadcast_to(plain_ns, len(PLAIN)) * 1.0)


def width(run, **options) -> int:
    low, high = interval_ns(100 * MS, run, **options)
    return high - low


@given(
    st.integers(0, 10**10),
    st.lists(st.integers(0, 10**9), min_size=1, max_size=40),
    st.lists(st.integers(0, 10**9), max_size=40),
    st.floats(0, 2),
)
def test_it_holds_the_prediction(
    predicted: int, recorded: list[int], plain: list[int], error: float
) -> None:
    run = representation(
        np.arange(len(recorded), dtype=np.int32),
        np.array(recorded),
        np.arange(len(plain), dtype=np.int32),
        np.array(plain),
    )
    low, high = interval_ns(predicted, run, model_error=error)
    assert 0 <= low <= predicted <= high


def test_a_run_of_equal_steps_differs_as_runs_do() -> None:
    least = 2 * SIGMAS_OF_90_PCT * BETWEEN_RUNS * 100 * MS
    assert least < width(run_of(100 * MS, 100 * MS)) < 1.3 * least


def test_it_reaches_from_the_windows_to_the_run() -> None:
    """305 ms inside the windows and 377 ms outside."""
    low, high = interval_ns(305 * MS, run_of(305 * MS, 377 * MS))
    assert 280 * MS < low < 305 * MS
    assert 377 * MS < high < 400 * MS
    low, high = interval_ns(377 * MS, run_of(377 * MS, 305 * MS))
    assert low < 305 * MS < 377 * MS < high


def test_windows_that_differ_widen_it_where_nothing_else_is_known() -> None:
    apart = np.repeat([90, 100, 110, 95, 105, 100], 4) * MS
    assert width(run_of(apart)) > 2 * width(run_of(100 * MS))
    # Where the run itself is known its level counts, not that of six windows.
    assert width(run_of(apart, 100 * MS)) < width(run_of(apart))


def test_a_run_that_drifts_widens_it() -> None:
    drifting = np.linspace(80, 120, len(PLAIN)) * MS
    assert width(run_of(100 * MS, drifting)) > 1.5 * width(run_of(100 * MS, 100 * MS))


def test_it_widens_with_what_a_change_assumes() -> None:
    run = run_of(100 * MS, 100 * MS)
    assert width(run) < width(run, model_error=0.02) < width(run, model_error=0.05)


def test_order_of_rows_does_not_matter() -> None:
    recorded = np.repeat([90, 100, 110, 95, 105, 100], 4) * MS
    order = np.random.default_rng(0).permutation(len(WINDOWS))
    assert interval_ns(MS, run_of(recorded)) == interval_ns(
        MS, run_of(recorded[order], step=WINDOWS[order])
    )


def test_it_covers_the_run_from_its_windows_alone() -> None:
    """A level that wanders: windows of four steps against the median of all the others."""
    rng = np.random.default_rng(5)
    hits = 0
    for _ in range(200):
        wander = 0.06 * np.repeat(rng.standard_normal(20), 20)
        every = 100 * MS * np.exp(wander + 0.03 * rng.standard_normal(400))
        recorded = every[WINDOWS]
        run = representation(WINDOWS, recorded, NONE, NONE)
        low, high = interval_ns(round(float(np.median(recorded))), run)
        hits += low <= np.median(every[PLAIN]) <= high
    assert hits / 200 > 0.85


@pytest.mark.parametrize(("plain_ms", "warns"), [(377, True), (300, False), (240, True)])
def test_it_warns_of_windows_that_do_not_represent_the_run(plain_ms: int, warns: bool) -> None:
    ledger = Ledger()
    note_unrepresentative(run_of(305 * MS, plain_ms * MS), ledger)
    assert ("windows-not-representative" in ledger) is warns
    if warns:
        assert f"{plain_ms} ms outside" in ledger["windows-not-representative"].example


def test_noise_is_no_reason_to_warn() -> None:
    rng = np.random.default_rng(6)
    noisy = 100 * MS * np.exp(0.4 * rng.standard_normal(len(WINDOWS)))
    plain = 100 * MS * np.exp(0.4 * rng.standard_normal(len(PLAIN)))
    assert not run_of(noisy, plain).is_unrepresentative


def test_errors_combine_as_variances_and_freedom_follows_the_largest() -> None:
    error, freedom = combine_errors((0.03, 4), (0.04, np.inf))
    assert error == pytest.approx(0.05)
    assert freedom > 4
    assert combine_errors((0.1, 3), (0.0001, 50))[1] == pytest.approx(3, rel=1e-3)
