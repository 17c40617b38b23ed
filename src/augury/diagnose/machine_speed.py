"""Corrects the steps of two runs to the same speed of the machine.

Recorders time the same copy of memory now and then (``capture/speed_probe.py``). Segments of
the runs show how step times depend on the copy's time (analysis of covariance). Where the
segments hardly differ, any dependence from none to proportional is possible, and the comparison is
less certain accordingly.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from augury.core.measured_step import run_segments
from augury.core.trace.trace import Trace

MIN_PROBES = 8
"""Minimum number of probes in a run; fewer do not resolve its segments."""

USUAL_SHARE, SHARE_ERROR = 0.5, 0.5
"""Prior of the dependence: relative change of steps per relative change of the copy, and its
standard error."""

_LEAST_SPREAD = 0.01
"""Minimum standard deviation of segments that the speed of the machine does not explain."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedSteps:
    """Steps of a run that are compared: their numbers, in order, and their durations."""

    number: NDArray[np.int32]
    dur_ns: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class EqualSpeed:
    """The steps of both runs at the median speed of the machine during the first run."""

    before: TimedSteps
    after: TimedSteps
    error: float
    """Standard error, as a share, of the change between the runs due to the unknown dependence on
    speed."""
    change: float
    """Logarithm of the ratio of the copy's times, after to before."""


def at_equal_speed(
    runs: tuple[Trace, Trace], steps: tuple[TimedSteps, TimedSteps]
) -> EqualSpeed | None:
    """None where the runs have too few speed probes."""
    speeds = [_by_segment(run, own) for run, own in zip(runs, steps, strict=True)]
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


def _by_segment(run: Trace, steps: TimedSteps) -> Floats | None:
    """Logarithms of the copy's time, one per segment."""
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


def _per_step(steps: TimedSteps, by_segment: Floats) -> Floats:
    speed = np.empty(len(steps.number))
    for part, value in zip(run_segments(steps.number), by_segment, strict=True):
        speed[part] = value
    return speed


def _share_of(
    steps: tuple[TimedSteps, TimedSteps], speeds: tuple[Floats, Floats]
) -> tuple[float, float]:
    """Dependence of step times on the copy's time, with its standard error: a regression within
    both runs with a prior."""
    level, speed = [], []
    for own, by_segment in zip(steps, speeds, strict=True):
        medians = [np.median(np.log(own.dur_ns[part])) for part in run_segments(own.number)]
        level.append(np.array(medians) - np.mean(medians))
        speed.append(by_segment - by_segment.mean())
    y, x = np.concatenate(level), np.concatenate(speed)
    freedom = max(1, len(y) - 3)
    plain = float(x @ y / (x @ x)) if x @ x > 0 else 0.0
    left = float((y - plain * x) @ (y - plain * x)) / freedom
    variance = max(left, _LEAST_SPREAD**2)
    weight = float(x @ x) / variance + 1 / SHARE_ERROR**2
    share = (float(x @ y) / variance + USUAL_SHARE / SHARE_ERROR**2) / weight
    return float(np.clip(share, 0.0, 1.0)), weight**-0.5
