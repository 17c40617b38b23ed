"""The 90 % interval of a predicted step.

A prediction is made from windows of recorded steps, and holds for the steps of the whole run. The
interval covers the measured difference between the two: it reaches from the level of the windows to
the level of the plain steps, widened on both sides by the random errors of the run's level, of the
variation from run to run, and of the assumptions of a change.
"""

from __future__ import annotations

import math

import msgspec
import numpy as np
from numpy.typing import NDArray

from augury.core.columns import I4
from augury.core.ledger import Ledger, Severity
from augury.core.measured_step import APART, StepLevel, level, level_of_windows, student
from augury.core.units import format_ns

NINE_OF_TEN = student(math.inf)
"""Number of standard deviations on each side that cover 90 % of a normal distribution."""

BETWEEN_RUNS = 0.015
"""Relative standard deviation between runs of the same job on a quiet machine."""


FEW_STEPS = 8
"""Minimum number of steps inside and outside of windows for a warning."""


class Representation(msgspec.Struct, frozen=True, kw_only=True):
    """How well the recorded windows of a run represent the run."""

    recorded: StepLevel
    plain: StepLevel | None = None
    """Level of the steps outside of windows; None if there are none."""

    @property
    def shift(self) -> float:
        """Logarithm of the ratio of plain steps to recorded ones."""
        if self.plain is None or not (self.plain.value_ns > 0 and self.recorded.value_ns > 0):
            return 0.0
        return math.log(self.plain.value_ns / self.recorded.value_ns)

    @property
    def run(self) -> StepLevel:
        return self.recorded if self.plain is None else self.plain

    @property
    def is_apart(self) -> bool:
        """Whether windows and run differ by more than chance explains."""
        if self.plain is None or min(self.recorded.num_steps, self.plain.num_steps) < FEW_STEPS:
            return False
        error, freedom = combined(
            (self.recorded.error, self.recorded.freedom), (self.plain.error, self.plain.freedom)
        )
        return abs(self.shift) > max(APART, student(freedom) * error)


def representation(
    recorded_step: I4,
    recorded_ns: NDArray[np.number],
    plain_step: I4,
    plain_ns: NDArray[np.number],
) -> Representation:
    """Compares the steps in windows with those outside, each with numbers and durations."""
    return Representation(
        recorded=level_of_windows(recorded_step, recorded_ns),
        plain=level(plain_step, plain_ns) if len(plain_step) else None,
    )


def note_unrepresentative(run: Representation, ledger: Ledger) -> None:
    """Adds a warning if the windows do not represent the run."""
    if run.is_apart and run.plain is not None:
        ledger.note(
            "windows-not-representative",
            "the recorded windows do not represent the run",
            severity=Severity.WARNING,
            remedy="record windows over the whole job (--steps auto), on a machine without other"
            " load; the interval covers the difference",
            example=f"{format_ns(round(run.recorded.value_ns))} a step in windows,"
            f" {format_ns(round(run.plain.value_ns))} outside"
            f" ({100 * math.expm1(run.shift):+.1f} %)",
        )


def interval_ns(
    predicted_ns: int, run: Representation, *, model_error: float = 0.0
) -> tuple[int, int]:
    """Returns the 90 % interval. ``model_error`` is the relative standard error of the assumptions
    that the prediction makes beyond the recording."""
    error, freedom = combined(
        (run.run.error, run.run.freedom), (math.hypot(BETWEEN_RUNS, model_error), math.inf)
    )
    reach = student(freedom) * error
    low, high = min(0.0, run.shift) - reach, max(0.0, run.shift) + reach
    return round(predicted_ns * math.exp(low)), round(predicted_ns * math.exp(min(50.0, high)))


def combined(*errors: tuple[float, float]) -> tuple[float, float]:
    """Combines standard errors and their degrees of freedom (Welch and Satterthwaite)."""
    total = sum(error**2 for error, _ in errors)
    if not total:
        return 0.0, math.inf
    doubt = sum(error**4 / freedom for error, freedom in errors)
    return math.sqrt(total), total**2 / doubt if doubt else math.inf
