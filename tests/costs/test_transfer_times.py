"""Fits of transfer times: known costs come back, and more bytes never take less time."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from augury.costs.transfer_times import TransferCost, fit_transfers

MIB = 1 << 20
SIZES = [4_096, 65_536, 262_144, MIB, 4 * MIB, 16 * MIB, 64 * MIB]
PROBED = [0, 1, 1_000, 100_000, MIB, 3 * MIB, 40 * MIB, 100 * MIB, 1 << 30]


def cost_ns(size_bytes: int, *, latency_ns: float, ns_per_byte: float) -> float:
    """Small ones go by a slower way, as with gloo."""
    return latency_ns + size_bytes * ns_per_byte + min(size_bytes, 262_144) * 2.0


samples = st.lists(
    st.tuples(st.integers(0, 1 << 28), st.floats(0, 1e9, allow_subnormal=False)), max_size=12
)


@given(st.floats(1e3, 1e6), st.floats(0.1, 50))
def test_calibration_gives_known_costs_back(latency_ns: float, ns_per_byte: float) -> None:
    points = [(s, cost_ns(s, latency_ns=latency_ns, ns_per_byte=ns_per_byte)) for s in SIZES]
    cost = fit_transfers([], points)
    assert cost is not None
    assert cost.ns_per_byte == pytest.approx(ns_per_byte, rel=1e-6)
    for size in (*SIZES, 2 * MIB, 40 * MIB, 200 * MIB):
        expected = cost_ns(size, latency_ns=latency_ns, ns_per_byte=ns_per_byte)
        assert cost.time_ns(size) == pytest.approx(expected, rel=1e-6)


@given(st.floats(0.5, 3))
def test_the_runs_own_collectives_say_how_fast_all_of_it_is(factor: float) -> None:
    points = [(s, cost_ns(s, latency_ns=5e4, ns_per_byte=8.0)) for s in SIZES]
    own = [(5 * MIB, factor * cost_ns(5 * MIB, latency_ns=5e4, ns_per_byte=8.0))] * 3
    cost = fit_transfers(own, points)
    assert cost is not None
    assert cost.ns_per_byte == pytest.approx(8.0 * factor)
    assert cost.time_ns(4_096) == pytest.approx(factor * points[0][1])
    assert cost.residual == pytest.approx(0, abs=1e-9)


@given(st.floats(1e3, 1e6), st.floats(0.1, 50))
def test_two_sizes_of_its_own_tell_latency_from_bandwidth(
    latency_ns: float, ns_per_byte: float
) -> None:
    own = [(s, latency_ns + s * ns_per_byte) for s in (2 * MIB, 2 * MIB, 25 * MIB)]
    cost = fit_transfers(own)
    assert cost is not None
    for size in (0, 1_000, MIB, 2 * MIB, 10 * MIB, 100 * MIB):
        assert cost.time_ns(size) == pytest.approx(latency_ns + size * ns_per_byte, rel=1e-4)


def test_one_size_counts_as_the_wires() -> None:
    cost = fit_transfers([(MIB, 1e6), (MIB, 3e6), (MIB, 2e6)])
    assert cost is not None
    assert cost.time_ns(MIB) == pytest.approx(2e6)
    assert cost.wire_ns(MIB) == pytest.approx(2e6)
    assert cost.time_ns(MIB // 2) == pytest.approx(1e6)
    assert cost.time_ns(4 * MIB) == pytest.approx(8e6)
    assert cost.residual == pytest.approx(0.5)


def test_nothing_measured_is_no_fit() -> None:
    assert fit_transfers([]) is None
    assert fit_transfers([(MIB, 0.0)]) is None


@given(samples, samples)
def test_more_bytes_never_take_less_time(
    own: list[tuple[int, float]], calibrated: list[tuple[int, float]]
) -> None:
    cost = fit_transfers(own, calibrated)
    if cost is None:
        return
    times = [cost.time_ns(size) for size in PROBED]
    assert all(later >= sooner * (1 - 1e-9) for sooner, later in pairwise(times))
    for size, time in zip(PROBED, times, strict=True):
        assert 0 <= cost.wire_ns(size) <= time * (1 + 1e-9)


@given(st.floats(0.01, 100), st.floats(0, 100), st.integers(0, 10**6))
def test_changes_are_of_the_wire_of_the_rest_or_on_top(
    wire: float, rest: float, more_ns: int
) -> None:
    cost = TransferCost(
        sizes_bytes=(0, MIB, 8 * MIB),
        times_ns=(5e4, 5e4 + MIB * 8.0, 5e4 + 8 * MIB * 8.0),
        ns_per_byte=8.0,
        residual=0.0,
    )
    changed = cost.changed(wire=wire, rest=rest, more_ns=more_ns)
    for size in (0, 10_000, MIB, 3 * MIB, 20 * MIB):
        expected = 5e4 * rest + more_ns + size * 8.0 * wire
        assert changed.time_ns(size) == pytest.approx(expected)
        assert changed.wire_ns(size) == pytest.approx(size * 8.0 * wire)
    again = changed.changed(wire=1 / wire)
    assert again.ns_per_byte == pytest.approx(8.0)


def test_large_transfers_that_take_equally_long_show_the_rate_of_the_link() -> None:
    """Two buckets of a run without calibration share the link; the larger one is not slower."""
    cost = fit_transfers([(160, 1e5), (1_400_000, 24e6), (4_100_000, 20e6)])
    assert cost is not None
    assert cost.ns_per_byte == pytest.approx(44e6 / 5.5e6, rel=0.01)
    assert cost.time_ns(4_100_000) == pytest.approx(4.1e6 * 8)
    assert cost.time_ns(160) == pytest.approx(1e5)


@pytest.mark.parametrize("large", [[(1_258_291, 54e3)], [(1_258_291, 54e3), (4 * MIB, 60e3)]])
def test_transfers_that_take_as_long_as_small_ones_show_latency(
    large: list[tuple[int, float]],
) -> None:
    samples = [(16_384, 50e3), (262_144, 51e3), *large]
    cost = fit_transfers(samples)
    assert cost is not None
    for size, time in samples:
        assert cost.time_ns(size) == pytest.approx(time)
