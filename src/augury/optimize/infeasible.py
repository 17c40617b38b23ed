"""The error of a memory limit that no combination meets."""

from __future__ import annotations

import math

from augury.core.errors import InfeasibleError
from augury.core.units import format_bytes, format_ns, format_percent
from augury.optimize.combination import Combined
from augury.optimize.tried_changes import advice_of
from augury.predict.plan_prediction import PlannedRun
from augury.predict.plan_summary import section_words

MAX_HOLDERS = 3
"""Kinds of memory that the error names."""


def infeasible(
    run: PlannedRun, limit_bytes: int, nearest: Combined, *, margin: float
) -> InfeasibleError:
    """Returns the error that names the binding constraint and the nearest feasible plan. ``margin``
    is the share of a limit that predicted peaks have to leave free."""
    plan, predicted = nearest.plan, nearest.predicted
    timeline = run.baseline if predicted is None else predicted.timeline
    peak = max(timeline.peak_memory, key=lambda one: one.size_bytes)
    by_kind: dict[str, int] = {}
    for holder in peak.holders:
        by_kind[holder.kind.label] = by_kind.get(holder.kind.label, 0) + holder.size_bytes
    largest = sorted(by_kind.items(), key=lambda item: -item[1])[:MAX_HOLDERS]
    held = ", ".join(f"{kind} {format_bytes(size)}" for kind, size in largest)
    how = "the run as recorded"
    if plan is not None:
        words = [section_words(name, getattr(plan, name.value)) for name in plan.applied]
        how = f"a plan of {', '.join(words)}"
    advised = [one for one in advice_of(run, needs_memory=True) if one.peak_bytes is not None]
    meeting = [one for one in advised if (one.peak_bytes or 0) <= limit_bytes * (1 - margin)]
    enough_bytes = math.ceil(peak.size_bytes / (1 - margin))
    by_hand = ""
    if meeting:
        by_hand = f"; by hand: {min(meeting, key=lambda one: one.step_ns).what}"
    error = InfeasibleError(
        f"no feasible plan: the memory limit of {format_bytes(limit_bytes)}, less"
        f" {format_percent(100 * margin)} for the error of predicted peaks, is below the least peak"
        f" that was found, {format_bytes(peak.size_bytes)} on rank {peak.rank} ({held})",
        remedy=f"a limit of {format_bytes(enough_bytes)} is met by {how}, with a predicted step"
        f" of {format_ns(timeline.step_ns)}{by_hand}",
    )
    error.result = {
        "memory_limit_bytes": limit_bytes,
        "nearest_peak_bytes": peak.size_bytes,
        "nearest_step_ns": timeline.step_ns,
        "nearest_sections": [] if plan is None else [name.value for name in plan.applied],
        "advice": advised,
    }
    return error
