"""Detects time within steps in which no operation was recorded."""

from __future__ import annotations

import numpy as np

from augury.core.results.diagnosis import Finding, Place
from augury.core.units import format_ns, format_percent
from augury.diagnose.detectors.detector import Detector
from augury.diagnose.examined_run import ExaminedRun
from augury.diagnose.findings import (
    is_worth_reporting,
    predicted_finding,
    share_figure,
    time_figure,
)
from augury.passes.removals.level_ranks import typical_work
from augury.passes.removals.no_gaps import NO_GAPS, gaps

GAP = "host-gap"
_LEAST_SHARE = 0.1
"""The interpreter itself takes some per cent of most steps."""


def _examine(run: ExaminedRun) -> list[Finding]:
    graph, ops = run.graph, run.graph.ops
    chosen = gaps(graph)
    steps, place = np.unique(ops.step, return_inverse=True)
    per_step = np.zeros((len(graph.ranks), len(steps)))
    np.add.at(per_step, (ops.rank[chosen], place[chosen]), ops.work_ns[chosen])
    # As the gain, of the median step: a single pause is no gap of each step.
    gap_ns = typical_work(per_step[:, steps >= 0])
    share = float(gap_ns.max(initial=0.0)) / max(1, run.step_ns)
    if share < _LEAST_SHARE:
        return []
    gain = run.predict((NO_GAPS, None))
    if gain is None or not is_worth_reporting(run, gain) or gain.gain_pct < 100 * _LEAST_SHARE:
        return []
    return [
        predicted_finding(
            gain,
            kind=GAP,
            title=f"{format_ns(round(float(gap_ns.max())))} of each step pass in no recorded"
            f" operation ({format_percent(100 * share)} of the step)",
            where=Place(),
            evidence=[
                time_figure("time without an operation", float(gap_ns.max())),
                share_figure("share of the step", share),
            ],
            action="Find out what the program does between operations: Python code, logging,"
            " checkpoints, garbage collection.",
            command="py-spy record --idle --pid PID",
            at_most="medium",
        )
    ]


HOST_GAPS = Detector(
    kinds=(GAP,),
    reason_against=lambda run: (
        "host threads only launch work of devices: see launch-bound" if run.is_on_devices else ""
    ),
    examine=_examine,
)
