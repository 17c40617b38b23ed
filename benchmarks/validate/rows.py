"""Rows of ``build/validate.json`` and their summary."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from statistics import median
from typing import Any

TOLERANCE_PCT = 5.0
UNDECIDED_PCT = 5.0
"""A row whose noise exceeds this is undecided."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    suite: str
    case: str
    kind: str
    measured_ns: int | None
    predicted_ns: int | None
    interval_ns: tuple[int, int] | None
    noise_pct: float | None
    num_steps: int | None = None
    unexplained_pct: float | None = None
    recording_cost_pct: float | None = None
    baseline_ns: int | None = None
    """Step of the unchanged configuration in the same rounds of the same job."""
    measured_bytes: int | None = None
    """Peak memory, in rows that have no times."""
    predicted_bytes: int | None = None
    predicted_gain_pct: float | None = None
    """``plan``: predicted reduction of the step."""
    sections: tuple[str, ...] = ()
    """``plan``: sections of the plan that the job applied."""
    predicted_parts_pct: dict[str, float] = field(default_factory=dict)
    """``plan``: by section, the gain that is lost without it, in points."""
    measured_parts_pct: dict[str, float] = field(default_factory=dict)
    """The same, of the sections that a trial left out."""
    trouble: str | None = None
    commit: str | None = None
    """Commit of the code that predicted."""
    is_dirty: bool = False
    """Whether files differed from that commit."""
    measured_commit: str | None = None

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> Row:
        interval = found["interval_ns"]
        return cls(
            **{one.name: found[one.name] for one in fields(cls) if one.name in found}
            | {
                "interval_ns": (interval[0], interval[1]) if interval else None,
                "sections": tuple(found.get("sections", ())),
            }
        )

    @property
    def error_pct(self) -> float | None:
        measured = self.measured_ns or self.measured_bytes
        predicted = self.predicted_ns or self.predicted_bytes
        if measured is None or predicted is None:
            return None
        return 100 * (predicted - measured) / measured

    @property
    def measured_gain_pct(self) -> float | None:
        """Reduction of the step."""
        if self.measured_ns is None or self.baseline_ns is None:
            return None
        return 100 * (1 - self.measured_ns / self.baseline_ns)

    @property
    def tolerance_pct(self) -> float:
        return max(TOLERANCE_PCT, 2 * (self.noise_pct or 0.0))

    @property
    def is_within(self) -> bool:
        return self.error_pct is not None and abs(self.error_pct) <= self.tolerance_pct

    @property
    def is_undecided(self) -> bool:
        return (self.noise_pct or 0.0) > UNDECIDED_PCT

    @property
    def is_covered(self) -> bool | None:
        if self.interval_ns is None or self.measured_ns is None:
            return None
        return self.interval_ns[0] <= self.measured_ns <= self.interval_ns[1]

    @property
    def half_width_pct(self) -> float | None:
        if self.interval_ns is None or not self.predicted_ns:
            return None
        return 50 * (self.interval_ns[1] - self.interval_ns[0]) / self.predicted_ns

    def as_json(self) -> dict[str, Any]:
        return {
            "suite": self.suite,
            "case": self.case,
            "kind": self.kind,
            "measured_ns": self.measured_ns,
            "predicted_ns": self.predicted_ns,
            "error_pct": _rounded(self.error_pct),
            "interval_ns": self.interval_ns,
            "noise_pct": _rounded(self.noise_pct),
            "within": self.is_within,
            "undecided": self.is_undecided,
            "covered": self.is_covered,
            "num_steps": self.num_steps,
            "unexplained_pct": _rounded(self.unexplained_pct),
            "recording_cost_pct": _rounded(self.recording_cost_pct),
            "baseline_ns": self.baseline_ns,
            "measured_bytes": self.measured_bytes,
            "predicted_bytes": self.predicted_bytes,
            "measured_gain_pct": _rounded(self.measured_gain_pct),
            "predicted_gain_pct": _rounded(self.predicted_gain_pct),
            "sections": self.sections,
            "predicted_parts_pct": self.predicted_parts_pct,
            "measured_parts_pct": self.measured_parts_pct,
            "trouble": self.trouble,
            "commit": self.commit,
            "is_dirty": self.is_dirty,
            "measured_commit": self.measured_commit,
        }


def summarize(rows: Sequence[Row]) -> dict[str, Any]:
    """Summarizes rows by kind."""
    return {
        kind: _summary([row for row in rows if row.kind == kind])
        for kind in dict.fromkeys(row.kind for row in rows)
    }


def _summary(rows: Sequence[Row]) -> dict[str, Any]:
    errors = [abs(row.error_pct) for row in rows if row.error_pct is not None]
    decided = [row for row in rows if not row.is_undecided]
    covered = [row.is_covered for row in rows if row.is_covered is not None]
    widths = [row.half_width_pct for row in rows if row.half_width_pct is not None]
    costs = [row.recording_cost_pct for row in rows if row.recording_cost_pct is not None]
    return {
        "cases": len(rows),
        "predicted": len(errors),
        "within": sum(row.is_within for row in rows),
        "decided": len(decided),
        "decided_within": sum(row.is_within for row in decided),
        "decided_within_10_pct": sum(abs(row.error_pct or 100.0) <= 10 for row in decided),
        "within_10_pct": sum(error <= 10 for error in errors),
        "median_error_pct": _median(errors),
        "worst_error_pct": _rounded(max(errors, default=None)),
        "covered": sum(covered),
        "with_interval": len(covered),
        "median_half_width_pct": _median(widths),
        "median_noise_pct": _median([row.noise_pct for row in rows if row.noise_pct is not None]),
        "median_recording_cost_pct": _median(costs),
    }


def _median(values: Sequence[float]) -> float | None:
    return _rounded(median(values)) if values else None


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 2)
