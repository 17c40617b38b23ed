"""Detects host threads that wait for devices within steps."""

from __future__ import annotations

from collections import Counter

import numpy as np

from augury.core.results.diagnosis import Finding, Place
from augury.core.units import format_count
from augury.diagnose.detectors.detector import Detector
from augury.diagnose.examined_run import ExaminedRun
from augury.diagnose.findings import count_figure, is_worth_reporting, predicted_finding
from augury.passes.removals.fast_host import NO_DEVICE
from augury.passes.removals.no_synchronization import NO_SYNCHRONIZATION, device_waits

SYNCHRONIZATION = "synchronization"
_MOST_NAMES = 3


def _examine(run: ExaminedRun) -> list[Finding]:
    graph = run.graph
    calls = np.unique(graph.edges.dst[device_waits(graph)])
    if not len(calls):
        return []
    gain = run.predict((NO_SYNCHRONIZATION, None))
    if gain is None or not is_worth_reporting(run, gain):
        return []
    per_step = len(calls) / max(1, graph.num_ranks * graph.num_steps)
    names = Counter(graph.op_name(op) for op in calls.tolist())
    return [
        predicted_finding(
            gain,
            kind=SYNCHRONIZATION,
            title=f"host threads wait for their device {format_count(round(per_step), 'time')} per"
            " step, and launch nothing meanwhile",
            where=Place(),
            evidence=[
                count_figure("waits per rank and step", round(per_step, 1)),
                *(count_figure(name, count) for name, count in names.most_common(_MOST_NAMES)),
            ],
            action="Avoid .item(), .cpu(), prints of tensors and pageable copies within steps.",
            command="torch.cuda.set_sync_debug_mode('warn')",
            at_most="medium",
        )
    ]


DEVICE_WAITS = Detector(
    kinds=(SYNCHRONIZATION,),
    reason_against=lambda run: "" if run.is_on_devices else NO_DEVICE,
    examine=_examine,
)
