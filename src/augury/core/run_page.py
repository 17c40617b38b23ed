"""Content of the page about one run: its timeline and its results, all optional but the replay."""

from __future__ import annotations

from dataclasses import dataclass

from augury.core.measured_step import MeasuredRun
from augury.core.results.breakdown import Breakdown, WhatIfRow
from augury.core.results.diagnosis import Diagnosis
from augury.core.results.replay import ReplayResult
from augury.core.results.schedule import ScheduleResult
from augury.core.results.wire import WireResult
from augury.core.timeline import Timeline
from augury.core.trace.trace import Trace


@dataclass(frozen=True, kw_only=True, eq=False)
class RunPage:
    """Sections without content are left out of the page."""

    name: str
    timeline: Timeline
    replay: ReplayResult
    breakdown: Breakdown
    trace: Trace | None = None
    """Measured events; None for a graph without a recorded run."""
    measured: MeasuredRun | None = None
    diagnosis: Diagnosis | None = None
    what_ifs: tuple[WhatIfRow, ...] = ()
    schedule: ScheduleResult | None = None
    wire: WireResult | None = None
