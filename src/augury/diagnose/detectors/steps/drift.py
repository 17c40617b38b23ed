"""Detects steps that become slower, or faster, over the run."""

from __future__ import annotations

import numpy as np

from augury.core.results.diagnosis import Finding, Place
from augury.core.units import format_percent
from augury.diagnose.detectors.detector import Detector
from augury.diagnose.examined_run import ExaminedRun
from augury.diagnose.findings import ratio_figure, share_figure, time_figure

DRIFT = "drift"
FEWEST_STEPS = 40
_LEAST_CHANGE = 0.15
_LEAST_CORRELATION = 0.6


def _examine(run: ExaminedRun) -> list[Finding]:
    number, dur_ns = run.step_series
    quarter = len(dur_ns) // 4
    first, last = float(np.median(dur_ns[:quarter])), float(np.median(dur_ns[-quarter:]))
    change = last / first - 1
    order = np.argsort(np.argsort(dur_ns))
    trend = float(np.corrcoef(np.arange(len(order)), order)[0, 1])
    if abs(change) < max(_LEAST_CHANGE, run.noise) or abs(trend) < _LEAST_CORRELATION:
        return []
    word = "slower" if change > 0 else "faster"
    return [
        Finding(
            kind=DRIFT,
            title=f"steps become {format_percent(100 * abs(change))} {word} over the run",
            where=Place(steps=[int(number[0]), int(number[-1])]),
            evidence=[
                time_figure("median step of the first quarter", first),
                time_figure("median step of the last quarter", last),
                share_figure("change", change),
                ratio_figure("rank correlation of step and time", trend),
            ],
            predicted_step_ns=None,
            interval_ns=None,
            gain_pct=None,
            gain_interval_pct=None,
            confidence="medium",
            action="Compare early and late windows; look for growing lists, caches, logs,"
            " temperature, or longer inputs."
            if change > 0
            else "Let the job warm up before it is measured; predictions may be of its slow part.",
        )
    ]


DRIFTING_STEPS = Detector(
    kinds=(DRIFT,),
    reason_against=lambda run: (
        "" if len(run.step_series[0]) >= FEWEST_STEPS
        else f"fewer than {FEWEST_STEPS} steps were timed"
    ),
    examine=_examine,
)  # fmt: skip
