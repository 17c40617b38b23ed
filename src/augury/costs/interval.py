"""How sure a predicted step is: an interval that the measured median should lie in nine times of
ten."""

from __future__ import annotations

import numpy as np

from augury.core.table import I4, I8

NINE_OF_TEN = 1.645
"""Standard deviations on either side that hold 90 % of a normal distribution."""

BETWEEN_RUNS = 0.015
"""The same job differs by this much from one run to the next on a quiet machine; what the run's
own windows show is weighed against it."""

_PRIOR_WINDOWS = 2


def interval_ns(
    predicted_ns: int, step: I4, step_ns: I8, *, model_error: float = 0.0
) -> tuple[int, int]:
    """``step`` and ``step_ns``: numbers and durations of the replayed steps. Numbers that follow
    each other are one window; windows were recorded at different times, so their medians tell how
    far the machine drifts. ``model_error`` is the standard error, as a share, of what the
    prediction assumes beyond what was recorded."""
    drift = _drift(step, step_ns)
    share = NINE_OF_TEN * float(np.hypot(np.hypot(drift, _sampling(step_ns)), model_error))
    return round(predicted_ns * (1 - min(share, 1.0))), round(predicted_ns * (1 + share))


def _sampling(step_ns: I8) -> float:
    """Of a median of so many steps."""
    if len(step_ns) < 2:
        return 0.0
    middle = float(np.median(step_ns))
    spread = 1.4826 * float(np.median(np.abs(step_ns - middle)))
    return 1.2533 * spread / np.sqrt(len(step_ns)) / middle if middle else 0.0


def _drift(step: I4, step_ns: I8) -> float:
    order = np.argsort(step, kind="stable")
    breaks = np.flatnonzero(np.diff(step[order]) > 1) + 1
    medians = np.array([np.median(part) for part in np.split(step_ns[order], breaks) if len(part)])
    medians = medians[medians > 0]
    if len(medians) < 2:
        return BETWEEN_RUNS
    own = float(np.var(medians / np.median(medians), ddof=1))
    seen = len(medians) - 1
    pooled = (seen * own + _PRIOR_WINDOWS * BETWEEN_RUNS**2) / (seen + _PRIOR_WINDOWS)
    # What is predicted and what it is held against are both medians over so many windows.
    return max(BETWEEN_RUNS, float(np.sqrt(2 * pooled / len(medians))))
