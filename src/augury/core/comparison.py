"""The Comparison of two runs of one job, and of a run with the prediction of its Plan."""

from __future__ import annotations

import msgspec

from augury.core.measured_step import MeasuredRun
from augury.core.plan.plan_status import TrialResult


class ComputeChange(msgspec.Struct, frozen=True, kw_only=True):
    """A class of operations whose compute time per step changed by more than chance explains."""

    kind: str
    before_ns: int
    after_ns: int
    change_pct: float


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Comparison of a run before a change and a run after it. ``predicted_step_ns`` is the Plan's
    predicted ratio to its own baseline, applied to the step measured before: the machine may be
    faster or slower on another day."""

    before: MeasuredRun
    after: MeasuredRun
    gain_pct: float
    gain_interval_pct: tuple[float, float]
    """90 % interval."""
    gain_source: str = "steps"
    """Basis of the gain: ``steps``; ``undelayed``, steps without the time for which training
    threads had no core because other processes used the machine; ``trial``, alternating blocks of
    stock and planned steps within the second run."""
    machine_change_pct: float | None = None
    """Change of the time of one memory copy from before to after. The machine itself changed speed
    by that much, and the gain is corrected for it. None if the runs did not measure it."""
    num_pairs: int = 1
    """Number of alternating runs before and after the change."""
    compute_changes: list[ComputeChange] = []
    trial: TrialResult | None = None
    followed_from_step: int | None = None
    """First step in which the second run followed its plan; None if unknown."""
    policy: str | None = None
    predicted_step_ns: int | None = None
    predicted_interval_ns: tuple[int, int] | None = None
    predicted_gain_pct: float | None = None
    error_pct: float | None = None
    came_true: bool | None = None
    """Whether the measured step lies inside the predicted 90 % interval."""

    @property
    def is_told_apart(self) -> bool:
        """Whether the interval of the gain excludes zero."""
        low, high = self.gain_interval_pct
        return low > 0 or high < 0
