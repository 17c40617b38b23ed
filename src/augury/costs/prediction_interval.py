"""The 90 % interval of a predicted step.

A prediction is made from windows of recorded steps, and holds for the steps of the whole run. The
interval covers the measured difference between the two: it reaches from the level of the windows to
the level of the plain steps. It is widened on both sides by three random errors: the error of the
run's level, the variation from run to run, and the error of the assumptions that a change makes.
"""

from __future__ import annotations

import math

import msgspec
import numpy as np
from numpy.typing import NDArray

from augury.core.columns import I4
from augury.core.ledger import Ledger, Severity
from augury.core.measured_step import MAX_WINDOW_SHIFT, StepLevel, level, level_of_windows, student
from augury.core.units import format_ns

SIGMAS_OF_90_PCT = student(math.inf)
"""Number of standard deviations on each side of the mean that contain 90 % of a normal
distribution."""

BETWEEN_RUNS = 0.015
"""Relative standard deviation between runs of the same job on a quiet machine."""

MIN_STEPS_TO_WARN = 8
"""Number of steps that are needed both inside and outside of windows for a warning."""


class Representation(msgspec.Struct, frozen=True, kw_only=True):
    """How well the recorded windows of a run represent the run."""

    recorded: StepLevel
    plain: StepLevel | None = None
    """Level of the steps outside of windows; None if there are none."""

    @property
    def shift(self) -> float:
        """Logarithm of the ratio of the plain level to the recorded level."""
        if self.plain is None or not (self.plain.value_ns > 0 and self.recorded.value_ns > 0):
            return 0.0
        return math.log(self.plain.value_ns / self.recorded.value_ns)

    @property
    def run_level(self) -> StepLevel:
        """Level of the run: that of the plain steps, or of the windows if there are none."""
        return self.recorded if self.plain is None else self.plain

    @property
    def is_unrepresentative(self) -> bool:
        """Whether windows and run differ by more than chance explains."""
        if self.plain is None:
            return False
        if min(self.recorded.num_steps, self.plain.num_steps) < MIN_STEPS_TO_WARN:
            return False
        error, freedom = combine_errors(
            (self.recorded.error, self.recorded.freedom), (self.plain.error, self.plain.freedom)
        )
        return abs(self.shift) > max(MAX_WINDOW_SHIFT, student(freedom) * error)


def representation(
    recorded_step: I4,
    recorded_ns: NDArray[np.number],
    plain_step: I4,
    plain_ns: NDArray[np.number],
) -> Representation:
    """Compares the steps in windows with the plain steps, both given by numbers and durations."""
    return Representation(
        recorded=level_of_windows(recorded_step, recorded_ns),
        plain=level(plain_step, plain_ns) if len(plain_step) else None,
    )


def note_unrepresentative(windows: Representation, ledger: Ledger) -> None:
    """Adds a warning if the windows do not represent the run."""
    if windows.is_unrepresentative and windows.plain is not None:
        ledger.note(
            "windows-not-representative",
            "the recorded windows do not represent the run",
            severity=Severity.WARNING,
            remedy="record windows over the whole job (--steps auto), on a machine without other"
            " load; the interval covers the difference",
            example=f"{format_ns(round(windows.recorded.value_ns))} a step in windows,"
            f" {format_ns(round(windows.plain.value_ns))} outside"
            f" ({100 * math.expm1(windows.shift):+.1f} %)",
        )


def interval_ns(
    predicted_ns: int, windows: Representation, *, model_error: float = 0.0
) -> tuple[int, int]:
    """Returns the 90 % interval of a prediction made from ``windows``. ``model_error`` is the
    relative standard error of the assumptions that the prediction makes beyond the recording."""
    run = windows.run_level
    error, freedom = combine_errors(
        (run.error, run.freedom), (math.hypot(BETWEEN_RUNS, model_error), math.inf)
    )
    reach = student(freedom) * error
    low, high = min(0.0, windows.shift) - reach, max(0.0, windows.shift) + reach
    high = min(50.0, high)  # or exp would overflow
    return round(predicted_ns * math.exp(low)), round(predicted_ns * math.exp(high))


def combine_errors(*errors: tuple[float, float]) -> tuple[float, float]:
    """Combines independent standard errors, each with its degrees of freedom, by the equation of
    Welch and Satterthwaite."""
    variance = sum(error**2 for error, _ in errors)
    if not variance:
        return 0.0, math.inf
    denominator = sum(error**4 / freedom for error, freedom in errors)
    return math.sqrt(variance), variance**2 / denominator if denominator else math.inf
