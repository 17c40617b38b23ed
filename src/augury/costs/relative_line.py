"""The straight line with the least squared relative errors, equal to the bit on all machines.

Libraries of linear algebra round differently on different processors. A rate that differs in its
last bit can change the sizes of pieces, thus a plan. Sums are exactly rounded here.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum


def relative_line(sizes: Sequence[float], times: Sequence[float]) -> tuple[float, float]:
    """Returns the intercept and the slope. Times are positive, and sizes are not all equal."""
    weights = [1.0 / (time * time) for time in times]
    total = fsum(weights)
    middle = fsum(w * size for w, size in zip(weights, sizes, strict=True)) / total
    level = fsum(w * time for w, time in zip(weights, times, strict=True)) / total
    apart = [size - middle for size in sizes]
    spread = fsum(w * away * away for w, away in zip(weights, apart, strict=True))
    slope = (
        fsum(w * away * (time - level) for w, away, time in zip(weights, apart, times, strict=True))
        / spread
    )
    return level - slope * middle, slope


def relative_slope(sizes: Sequence[float], times: Sequence[float]) -> float:
    """Returns the slope of such a line through the origin."""
    rates = [size / time for size, time in zip(sizes, times, strict=True)]
    return fsum(rates) / fsum(rate * rate for rate in rates)
