"""The Prediction: a predicted step with its interval, its baseline and the measured step."""

from __future__ import annotations

import msgspec


class Prediction(msgspec.Struct, frozen=True, kw_only=True):
    predicted_step_ns: int
    interval_ns: tuple[int, int] | None = None
    """90 % interval; None where no steps were recorded."""
    baseline_step_ns: int | None = None
    """The replayed step without the change; None where nothing was changed."""
    measured_step_ns: int | None = None
    """The measured step; None where the predicted run was not measured."""
    model_error: float = 0.0
    """Standard error of the model of the change, as a share of the step."""
    peak_memory_bytes: int | None = None
    """Peak memory of the rank that holds most; None where no memory was recorded."""

    @property
    def error_pct(self) -> float | None:
        return error_pct(self.predicted_step_ns, self.measured_step_ns)

    @property
    def gain_pct(self) -> float | None:
        """Positive is faster than the baseline."""
        if self.baseline_step_ns is None:
            return None
        return 100 * (1 - self.predicted_step_ns / max(1, self.baseline_step_ns))


def error_pct(predicted_ns: int | None, measured_ns: int | None) -> float | None:
    """Signed prediction error in percent of the measured time."""
    if predicted_ns is None or not measured_ns:
        return None
    return round(100 * (predicted_ns - measured_ns) / measured_ns, 4)
