"""The Comparison of two runs of one job, and of a run with what a Plan predicted of it."""

from __future__ import annotations

import msgspec

from augury.core.measured_step import MeasuredRun
from augury.core.plan.plan_status import TrialResult


class ComputeChange(msgspec.Struct, frozen=True, kw_only=True):
    """Compute of one class of operations, per step, which took longer or shorter than before by
    more than chance explains."""

    kind: str
    before_ns: int
    after_ns: int
    change_pct: float


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """``predicted_step_ns`` is what the Plan predicted as a share of its own baseline, taken of
    what was measured before: another day's machine may be faster or slower altogether."""

    before: MeasuredRun
    after: MeasuredRun
    gain_pct: float
    gain_interval_pct: tuple[float, float]
    """90 %."""
    gain_source: str = "steps"
    """What the gain is counted from: ``steps``; ``undelayed``, steps without the time for which
    training threads had no core, where other processes used the machine; ``trial``, blocks of
    stock and planned steps that alternated within the second run."""
    machine_change_pct: float | None = None
    """What the same copy of memory took longer after than before: the machine itself was slower,
    and the gain is counted as at equal speed. None: the runs do not say."""
    num_pairs: int = 1
    """Runs before and after the change that alternated."""
    compute_changes: list[ComputeChange] = []
    trial: TrialResult | None = None
    followed_from_step: int | None = None
    """The step from which on the second run followed its plan; None: it does not say."""
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
