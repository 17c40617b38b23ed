"""The Comparison of two runs of one job, and of the second run with the prediction of a Plan."""

from __future__ import annotations

import msgspec

from augury.core.measured_step import MeasuredRun
from augury.core.plan.plan_status import TrialResult


class ComputeChange(msgspec.Struct, frozen=True, kw_only=True):
    """Compute time per step of one kind of operation that changed by more than chance explains."""

    kind: str
    before_ns: int
    after_ns: int
    change_pct: float


class PartChange(msgspec.Struct, frozen=True, kw_only=True):
    """Time per step of one part of the work, before and after; 0 where a run does not have it."""

    name: str
    before_ns: int
    after_ns: int
    change_pct: float | None
    """None where the part is missing before."""
    noise_ns: int
    """Half the width of the 90 % interval of the change."""
    is_certain: bool
    """Whether the change exceeds the noise and 3 %."""

    @property
    def change_ns(self) -> int:
        return self.after_ns - self.before_ns


class StepSeries(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers and durations of the measured steps of one run, in their order."""

    step: list[int]
    dur_ns: list[int]


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """``predicted_step_ns`` is the Plan's predicted share of its own baseline, applied to the step
    measured before: the whole machine may be faster or slower on another day."""

    before: MeasuredRun
    after: MeasuredRun
    gain_pct: float
    gain_interval_pct: tuple[float, float]
    """90 % interval."""
    gain_source: str = "steps"
    """Measurement behind the gain: ``steps``; ``undelayed``, steps without the time for which
    training threads had no core, where other processes used the machine; ``trial``, blocks of
    stock and planned steps that alternated within the second run."""
    machine_change_pct: float | None = None
    """Change of the time of the same memory copy; positive: the machine was slower after. The gain
    is corrected to equal speed. None where the runs do not say."""
    num_pairs: int = 1
    """Number of pairs of alternating runs before and after the change."""
    differences: list[str] = []
    """Signs that the runs are of different jobs: another model, another number of ranks."""
    compute_changes: list[ComputeChange] = []
    phase_changes: list[PartChange] = []
    """Time on the main thread by phase, with the gaps between phases; in timing windows. As in the
    lists below, the largest changes come first."""
    kind_changes: list[PartChange] = []
    """Time by kind of operation, on all streams; in timing windows."""
    layer_changes: list[PartChange] = []
    """Time by layer; in detailed windows, which are slower."""
    operation_changes: list[PartChange] = []
    """Time by name of the operation; in detailed windows."""
    trial: TrialResult | None = None
    followed_from_step: int | None = None
    """First step in which the second run followed its plan; None where it does not say."""
    not_applied: dict[str, str] = {}
    """Sections of the plan that the second run did not apply, with the reason."""
    policy: str | None = None
    """Policy of the plan's communication; None: the plan does not change it."""
    memory_limit_bytes: int | None = None
    """Memory limit that the plan was made for; None: it was made for speed."""
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

    def is_slower_by(self, pct: float) -> bool:
        """Whether the second run is slower by more than ``pct`` percent beyond doubt: the whole
        90 % interval of the gain lies below the loss of that size."""
        return self.gain_interval_pct[1] < -pct
