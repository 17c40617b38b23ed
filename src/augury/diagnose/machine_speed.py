"""Two runs as they would compare on a machine of the same speed.

Recorders time the same copy of memory now and then (``capture/speed_probe.py``). How much longer
steps take when the copy does is seen within the runs, whose stretches differ (analysis of
covariance); where they hardly differ, anything from not at all to just as much is possible, and the
comparison is that uncertain.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from augury.core.measured_step import run_segments
from augury.core.trace.trace import Trace

MIN_PROBES = 8
"""Of a run. Fewer say nothing of its stretches."""

USUAL_SHARE, SHARE_ERROR = 0.5, 0.5
"""Before the runs are looked at: by what share of the copy's change steps change, and the standard
error of that."""

_LEAST_SPREAD = 0.01
"""Standard deviation of stretches that no speed of the machine explains, at least."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedSteps:
    """Steps of a run that are compared: their numbers, in order, and how long each took."""

    number: NDArray[np.int32]
    dur_ns: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class EqualSpeed:
    """The steps of both runs as at the speed that the machine had, at the median, in the first."""

    before: TimedSteps
    after: TimedSteps
    error: float
    """Standard error of the change between them for not knowing how steps depend on speed, as a
    share."""
    change: float
    """What the copy took longer after, as a logarithm of the ratio."""


def at_equal_speed(
    runs: tuple[Trace, Trace], steps: tuple[TimedSteps, TimedSteps]
) -> EqualSpeed | None:
    """None where the runs do not tell how fast the machine was."""
    speeds = [_by_stretch(run, own) for run, own in zip(runs, steps, strict=True)]
    first, second = speeds
    if first is None or second is None:
        return None
    share, share_error = _share_of(steps, (first, second))
    reference, now = float(np.median(first)), float(np.median(second))
    before, after = (
        TimedSteps(
            number=own.number,
            dur_ns=own.dur_ns * np.exp(share * (reference - _per_step(own, speed))),
        )
        for own, speed in zip(steps, (first, second), strict=True)
    )
    change = now - reference
    return EqualSpeed(before=before, after=after, error=share_error * abs(change), change=change)


def _by_stretch(run: Trace, steps: TimedSteps) -> Floats | None:
    """Logarithms of what the copy took, one a stretch."""
    probes = [probe for facts in run.ranks for probe in facts.speed if probe[1] > 0]
    if len(probes) < MIN_PROBES or not len(steps.number):
        return None
    step, took_ns = np.array(probes, dtype=np.float64).T
    took = np.log(took_ns)
    found = []
    for part in run_segments(steps.number):
        own = steps.number[part]
        inside = (step >= own[0] - 1) & (step <= own[-1])
        found.append(np.median(took[inside]) if inside.any() else np.nan)
    known = np.array(found)
    return np.where(np.isnan(known), np.median(took), known)


def _per_step(steps: TimedSteps, by_stretch: Floats) -> Floats:
    speed = np.empty(len(steps.number))
    for part, value in zip(run_segments(steps.number), by_stretch, strict=True):
        speed[part] = value
    return speed


def _share_of(
    steps: tuple[TimedSteps, TimedSteps], speeds: tuple[Floats, Floats]
) -> tuple[float, float]:
    """By what share of the copy's change steps change, with its standard error: regression within
    both runs, with what is usual as the prior."""
    level, speed = [], []
    for own, by_stretch in zip(steps, speeds, strict=True):
        medians = [np.median(np.log(own.dur_ns[part])) for part in run_segments(own.number)]
        level.append(np.array(medians) - np.mean(medians))
        speed.append(by_stretch - by_stretch.mean())
    y, x = np.concatenate(level), np.concatenate(speed)
    freedom = max(1, len(y) - 3)
    plain = float(x @ y / (x @ x)) if x @ x > 0 else 0.0
    left = float((y - plain * x) @ (y - plain * x)) / freedom
    variance = max(left, _LEAST_SPREAD**2)
    weight = float(x @ x) / variance + 1 / SHARE_ERROR**2
    share = (float(x @ y) / variance + USUAL_SHARE / SHARE_ERROR**2) / weight
    return float(np.clip(share, 0.0, 1.0)), weight**-0.5
