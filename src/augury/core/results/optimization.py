"""Results of ``augury optimize``, and of ``augury replay --plan``; JSON has the same fields."""

from __future__ import annotations

import msgspec

from augury.core.ledger import Anomaly
from augury.core.results.replay import WhatIfResult
from augury.core.results.schema_version import SCHEMA_VERSION


class SectionShare(msgspec.Struct, frozen=True, kw_only=True):
    """One section of a plan, and what it gains in the plan."""

    section: str
    what: str
    """The section in words."""
    without_ns: int
    """The predicted step with this section left out."""
    share_pct: float
    """Part of the baseline's step that this section saves, in the presence of all others. Shares
    do not add up to the gain: a section may need another one."""
    error_pct: float
    """Standard error of the prediction of this section, as a percentage of the step."""


class TriedChange(msgspec.Struct, frozen=True, kw_only=True):
    """A change that is not in the plan, and the reason."""

    section: str
    what: str
    step_ns: int | None
    """The predicted step of the recorded run with this change alone, in its best form; null where
    it was not predicted."""
    gain_pct: float | None
    reason: str


class Advice(msgspec.Struct, frozen=True, kw_only=True):
    """A change that only the user can make."""

    section: str
    what: str
    step_ns: int
    """The predicted step of the recorded run with this change alone."""
    gain_pct: float
    peak_bytes: int | None
    lines: str
    """Lines of a program that make it."""


class SearchEffort(msgspec.Struct, frozen=True, kw_only=True):
    """How much was searched."""

    num_candidates: int
    """Combinations that were estimated or replayed."""
    num_replayed: int
    elapsed_s: float
    is_complete: bool
    """Whether the search ended by itself; otherwise its budget ended it."""
    seed: int


class OptimizeResult(msgspec.Struct, frozen=True, kw_only=True):
    """The best combination of changes. Gains are counted from ``baseline_step_ns``, the replay of
    the recorded run. Without a plan the predicted step is that of the baseline."""

    schema_version: int = SCHEMA_VERSION
    num_ranks: int
    measured_step_ns: int | None
    baseline_step_ns: int
    predicted_step_ns: int
    interval_ns: tuple[int, int] | None
    gain_pct: float
    noise_pct: float
    """Gains below this are within the run's own variation and cannot be measured."""
    can_pay: bool
    """Whether a plan is worthwhile: it gains more than the noise, or meets a memory limit that the
    recorded run does not meet."""
    baseline_peak_bytes: int | None
    peak_bytes: int | None
    """Peak memory of the rank that holds most; null where no memory was recorded."""
    memory_limit_bytes: int | None
    memory_target_bytes: int | None
    """The predicted peak that a plan may have: the limit less a margin."""
    memory_margin_pct: float
    """The margin, for the error of predicted peaks."""
    sections: list[SectionShare]
    tried: list[TriedChange]
    advice: list[Advice]
    search: SearchEffort
    plan: str | None = None
    """Path of the plan; null if none was written."""
    ledger: list[Anomaly]
    warnings: list[str] = []
    """Reasons, seen in the recorded run, why the runtime will refuse a plan."""


class PlanReplayResult(WhatIfResult, frozen=True, kw_only=True):
    """The predicted step under a plan; ``changes`` are its sections in words."""

    sections: list[SectionShare]
