from __future__ import annotations

import math

import pytest

from augury.report.svg import MAX_TICKS, linear_ticks, log_ticks


@pytest.mark.parametrize(
    "values",
    [[], [1.0], [0.1, 0.2], [0.103, 5.17], [1e-9, 1e9], [0.0], [17.2e9], [999.9, 1000.1], [5e-324]],
)
def test_ticks_are_few_and_enclose_all_values(values: list[float]):
    ticks = log_ticks(values)
    assert 2 <= len(ticks) <= MAX_TICKS
    assert ticks == sorted(ticks)
    for value in values:
        assert ticks[0] <= max(value, 1e-12) <= ticks[-1]
    for tick in ticks:
        mantissa = tick / 10 ** math.floor(math.log10(tick) + 1e-9)
        assert any(mantissa == pytest.approx(factor) for factor in (1, 2, 5))


@pytest.mark.parametrize("values", [[], [97.0], [100.0], [0.3, 12.1], [133.0], [1e-7], [0.0]])
def test_share_axes_start_at_zero(values: list[float]):
    ticks = linear_ticks(values)
    assert ticks[0] == 0
    assert 2 <= len(ticks) <= MAX_TICKS
    assert max(values, default=0) <= ticks[-1] * (1 + 1e-6)


def test_ticks_are_round_numbers():
    assert log_ticks([0.103, 5.17]) == pytest.approx([0.1, 0.2, 0.5, 1, 2, 5, 10])
    assert linear_ticks([97.0]) == [0, 20, 40, 60, 80, 100]
