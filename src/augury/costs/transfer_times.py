"""Time of a collective as a function of its size, fitted to measurements."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from augury.costs.relative_line import relative_line

LARGE_BYTES = 1 << 20
"""Smallest size whose time is determined by bandwidth."""

_NEAR = 1.5
"""Sizes within this factor do not determine a slope."""
_FLAT = 0.1
"""With a smaller share of their time for bytes, large collectives do not determine a slope."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferCost:
    """Piecewise linear function of the size: through (``sizes_bytes``, ``times_ns``), and beyond
    the last point with the slope ``ns_per_byte``, the wire time of a byte."""

    sizes_bytes: tuple[int, ...]
    times_ns: tuple[float, ...]
    ns_per_byte: float
    residual: float
    """Median relative distance of the measurements."""

    def time_ns(self, size_bytes: int) -> float:
        last = self.sizes_bytes[-1]
        if size_bytes >= last:
            return self.times_ns[-1] + (size_bytes - last) * self.ns_per_byte
        return float(np.interp(size_bytes, self.sizes_bytes, self.times_ns))

    def wire_ns(self, size_bytes: int) -> float:
        """Returns the part of the time that a faster link would shorten."""
        return min(size_bytes * self.ns_per_byte, self.time_ns(size_bytes))

    def changed(
        self, *, wire: float = 1.0, rest: float = 1.0, more_ns: float = 0.0
    ) -> TransferCost:
        """Returns times with the wire's part multiplied by ``wire``, the rest by ``rest``, and
        ``more_ns`` added."""
        on_wire = [self.wire_ns(size) for size in self.sizes_bytes]
        return replace(
            self,
            times_ns=tuple(
                (time - own) * rest + own * wire + more_ns
                for time, own in zip(self.times_ns, on_wire, strict=True)
            ),
            ns_per_byte=self.ns_per_byte * wire,
        )


Sample = tuple[int, float]
"""Size in bytes and time in nanoseconds."""


def fit_transfers(own: Sequence[Sample], calibrated: Sequence[Sample] = ()) -> TransferCost | None:
    """Fits times to the run's collectives, ``own``, and to those that the recorder ran,
    ``calibrated``. Calibrated ones give the shape; the run's own give a factor on all of it.
    Samples below 1 ns are ignored."""
    own = [(size, time) for size, time in own if time >= 1]
    calibrated = [(size, time) for size, time in calibrated if time >= 1]
    if not calibrated:
        return _line(own) if own else None
    shape = _through(_means(calibrated))
    ratios = [time / shape.time_ns(size) for size, time in own if size > 0]
    if not ratios:
        return shape
    factor = float(np.median(ratios))
    return replace(
        shape.changed(wire=factor, rest=factor),
        residual=float(np.median(np.abs(np.array(ratios) / factor - 1))),
    )


def _means(samples: Iterable[Sample]) -> list[Sample]:
    """Returns means of the middle four fifths. With few cores, small collectives take from 0.1 to
    3 ms, and a step with many of them takes their mean."""
    return [(size, _mean_of_middle(times)) for size, times in _by_size(samples)]


def _mean_of_middle(times: list[float]) -> float:
    cut = len(times) // 10
    return float(np.mean(sorted(times)[cut : len(times) - cut]))


def _medians(samples: Iterable[Sample]) -> list[Sample]:
    return [(size, float(np.median(times))) for size, times in _by_size(samples)]


def _by_size(samples: Iterable[Sample]) -> list[tuple[int, list[float]]]:
    of_size: dict[int, list[float]] = {}
    for size, time in samples:
        of_size.setdefault(size, []).append(time)
    return sorted(of_size.items())


def _through(points: list[Sample]) -> TransferCost:
    """Makes times monotonic: if a smaller size was slower, both get their mean. Below the smallest
    size the time decreases by its wire part, if it has one."""
    sizes = [size for size, _ in points]
    times = _rising([time for _, time in points])
    large = [(size, time) for size, time in zip(sizes, times, strict=True) if size >= LARGE_BYTES]
    slope = _slope(large if len(large) > 1 else list(zip(sizes, times, strict=True)))
    if sizes[0] > 0:
        times.insert(0, max(0.0, times[0] - sizes[0] * slope))
        sizes.insert(0, 0)
    return TransferCost(
        sizes_bytes=tuple(sizes), times_ns=tuple(times), ns_per_byte=slope, residual=0.0
    )


def _rising(times: list[float]) -> list[float]:
    """Returns the closest times that do not decrease (isotonic regression)."""
    from scipy.optimize import isotonic_regression  # noqa: PLC0415 - slow to import

    fitted: list[float] = isotonic_regression(times).x.tolist()
    return fitted


def _slope(points: Sequence[Sample]) -> float:
    if len(points) < 2:
        return points[0][1] / max(1, points[0][0])
    sizes, times = zip(*points, strict=True)
    # Relative errors: otherwise the largest size alone would decide.
    return max(relative_line(sizes, times)[1], 0.0)


def _line(own: Sequence[Sample]) -> TransferCost:
    points = _medians(own)
    smallest, largest = (max(1, points[i][0]) for i in (0, -1))
    # A single size: all of its time counts as wire time.
    fitted = _through(points if largest >= _NEAR * smallest else [(largest, points[-1][1])])
    small = [(size, time) for size, time in points if size < LARGE_BYTES]
    large = [(size, time) for size, time in points if size >= LARGE_BYTES]
    latency_ns = max((time for _, time in small), default=0.0)
    is_flat = fitted.ns_per_byte * largest < _FLAT * fitted.time_ns(largest)
    if len(large) > 1 and is_flat and min(time for _, time in large) > 2 * latency_ns:
        # Large transfers that share the link end together, whatever their sizes: their sum shows
        # its rate. Where they take as long as small ones, the time is latency.
        rate = sum(time for _, time in large) / sum(size for size, _ in large)
        fitted = _through([*small, (largest, rate * largest)])
    return replace(fitted, residual=_spread(own))


def _spread(own: Sequence[Sample]) -> float:
    medians = dict(_medians(own))
    return float(np.median([abs(time / medians[size] - 1) for size, time in own]))
