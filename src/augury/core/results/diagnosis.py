"""The Diagnosis of a run: verdict, waterfall and Findings; its JSON has the same fields."""

from __future__ import annotations

from typing import Literal

import msgspec

from augury.core.ledger import Anomaly
from augury.core.results.schema_version import SCHEMA_VERSION

Bound = Literal["communication", "straggler", "input", "host", "compute", "pipeline", "unknown"]
"""What limits the step most."""

Confidence = Literal["high", "medium", "low"]


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a run that a Finding is about. Empty lists mean: all of it."""

    ranks: list[int] = []
    hosts: list[str] = []
    steps: list[int] = []
    layers: list[str] = []
    size_bytes: int | None = None


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """A number that supports a Finding. ``unit`` is ``ns``, ``bytes``, ``bytes/s``, ``%``, ``x``
    or empty for a count."""

    name: str
    value: float
    unit: str = ""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """Something that makes the run slow, and the predicted step once it is fixed."""

    kind: str
    """Stable slug, such as ``straggler-compute``."""
    title: str
    """One sentence: what is slow, where, by how much."""
    where: Place
    evidence: list[Figure]
    predicted_step_ns: int | None
    """The step with the fix, by replay; None if the fix cannot be replayed."""
    interval_ns: tuple[int, int] | None
    """90 % interval of ``predicted_step_ns``."""
    gain_pct: float | None
    """Positive is faster than the replayed step; None if the fix cannot be replayed."""
    gain_interval_pct: tuple[float, float] | None
    confidence: Confidence
    action: str
    """What to do, in one sentence."""
    command: str = ""
    """A command, setting or code line that does it or examines it further; may be empty."""
    applied_by: Literal["schedule", "optimize", ""] = ""
    """The verb that writes a plan for it; empty if only the user can fix it."""


class WaterfallPart(msgspec.Struct, frozen=True, kw_only=True):
    """One cause, removed after all causes before it."""

    name: str
    """The cause, such as ``exposed communication``."""
    removed_ns: int
    """Time that its removal takes off the step; the parts and the floor add up to the step."""
    step_ns: int
    """The step that remains."""


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """``findings`` are ranked by gain and confidence; it is empty if nothing is worth doing."""

    schema_version: int = SCHEMA_VERSION
    bound: Bound
    verdict: str
    """One line, such as ``communication-bound: 37 % of the step is exposed communication``."""
    measured_step_ns: int | None
    replayed_step_ns: int
    interval_ns: tuple[int, int] | None
    noise_pct: float
    """Gains below this cannot be told from noise and are not reported."""
    waterfall: list[WaterfallPart]
    """Starts at the measured step (the replayed one if nothing was measured); the first part is the
    difference between both, if any, and the last ``step_ns`` is the compute floor."""
    findings: list[Finding]
    not_examined: dict[str, str]
    """Kinds of findings that this run cannot show, with the reason."""
    ledger: list[Anomaly]
