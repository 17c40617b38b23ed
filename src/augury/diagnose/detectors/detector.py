"""The protocol of a detector."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from augury.core.results.diagnosis import Finding
from augury.diagnose.examined_run import ExaminedRun


@dataclass(frozen=True, slots=True, kw_only=True)
class Detector:
    """Finds one cause, or several that the same evidence tells apart."""

    kinds: tuple[str, ...]
    """Slugs of its Findings; they stay stable."""
    reason_against: Callable[[ExaminedRun], str]
    """Returns why a run cannot show these kinds; empty if it can."""
    examine: Callable[[ExaminedRun], list[Finding]]
    """Returns what it finds. Findings that are not worth their gain are left out."""


def always(_run: ExaminedRun) -> str:
    """Every run can show it."""
    return ""


def needs_ranks(run: ExaminedRun) -> str:
    return "" if run.graph.num_ranks > 1 else "the run has one rank"
