"""The line with the least squared relative errors."""

from __future__ import annotations

import random

import numpy as np
import pytest

from augury.costs.relative_line import relative_line, relative_slope

POINTS = [(float(1 << nth), 130.0 + 7.25 * (1 << nth)) for nth in range(10, 24)]


def _noisy(seed: int) -> tuple[list[float], list[float]]:
    chosen = random.Random(seed)
    sizes = sorted(chosen.sample(range(1_000, 60_000_000), 12))
    return [float(size) for size in sizes], [
        (5e4 + 8.5 * size) * chosen.uniform(0.8, 1.2) for size in sizes
    ]


def test_points_of_a_line_give_that_line():
    sizes, times = zip(*POINTS, strict=True)
    assert relative_line(sizes, times) == pytest.approx((130.0, 7.25), rel=1e-12)
    assert relative_slope(sizes, [3.5 * size for size in sizes]) == pytest.approx(3.5, rel=1e-15)


@pytest.mark.parametrize("seed", range(20))
def test_the_line_has_the_least_squared_relative_errors(seed: int):
    sizes, times = _noisy(seed)
    design = np.column_stack([np.ones(len(sizes)), sizes]) / np.array(times)[:, None]
    expected = np.linalg.lstsq(design, np.ones(len(sizes)), rcond=None)[0]
    assert relative_line(sizes, times) == pytest.approx(expected.tolist(), rel=1e-7)
    slope = np.linalg.lstsq(design[:, 1:], np.ones(len(sizes)), rcond=None)[0]
    assert relative_slope(sizes, times) == pytest.approx(slope[0], rel=1e-12)


@pytest.mark.parametrize("seed", range(20))
def test_the_order_of_points_does_not_change_a_bit(seed: int):
    sizes, times = _noisy(seed)
    points = list(zip(sizes, times, strict=True))
    random.Random(seed + 1).shuffle(points)
    assert relative_line(*zip(*points, strict=True)) == relative_line(sizes, times)


def test_nearly_flat_times_keep_their_slope():
    sizes = [float(1 << nth) for nth in range(4, 12)]
    times = [1e9 + 0.5 * size for size in sizes]
    assert relative_line(sizes, times)[1] == pytest.approx(0.5, rel=1e-6)
