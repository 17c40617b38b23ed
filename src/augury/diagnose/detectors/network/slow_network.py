"""Detects collectives that take longer in training than the calibration of the same network."""

from __future__ import annotations

import numpy as np

from augury.core.enums import OpKind
from augury.core.graph.graph import NONE
from augury.core.results.diagnosis import Figure, Finding, Place
from augury.costs.transfer_times import LARGE_BYTES, TransferCost, fit_transfers
from augury.diagnose.detectors.detector import Detector
from augury.diagnose.examined_run import ExaminedRun
from augury.diagnose.findings import is_worth_reporting, predicted_finding, ratio_figure
from augury.passes.bandwidth import BANDWIDTH, Rate

SLOW_NETWORK_KIND = "slow-network"
_SLOW = 1.5
"""Collectives are slow if they take this many times as long as calibrated ones. Processors that
are busy with training slow them by less."""


def _examine(run: ExaminedRun) -> list[Finding]:
    alone = calibrated_cost(run)
    assert alone is not None
    ops = run.graph.ops
    rows = np.flatnonzero((ops.kind == OpKind.ALL_REDUCE) & (ops.size_bytes >= LARGE_BYTES))
    rows = rows[np.unique(ops.gang[rows], return_index=True)[1]]
    rows = rows[ops.gang[rows] != NONE]
    if not len(rows):
        return []
    expected = np.array([alone.time_ns(int(size)) for size in ops.size_bytes[rows]])
    ratio = float(np.median(ops.work_ns[rows] / expected))
    if ratio < _SLOW:
        return []
    gain = run.predict((BANDWIDTH, Rate(factor=ratio)))
    if gain is None or not is_worth_reporting(run, gain):
        return []
    size_bytes = int(np.median(ops.size_bytes[rows]))
    rate = 1e9 * size_bytes / float(np.median(ops.work_ns[rows]))
    return [
        predicted_finding(
            gain,
            kind=SLOW_NETWORK_KIND,
            title=f"collectives take {ratio:.1f} times as long in training as in calibration",
            where=Place(size_bytes=size_bytes),
            evidence=[
                ratio_figure("time against calibration", ratio),
                Figure(name="reduced in training", value=round(rate), unit="bytes/s"),
                Figure(name="reduced in calibration", value=round(rate * ratio), unit="bytes/s"),
            ],
            action="Look for other traffic on the network, and for processors that communication"
            " has to share.",
            command="augury run --wire --calibrate -- ...",
            at_most="medium",
        )
    ]


def calibrated_cost(run: ExaminedRun) -> TransferCost | None:
    """Returns the cost of all-reduces by calibration alone; None if the run has none."""
    samples = [
        (row.size_bytes, float(ns))
        for row in run.opened.calibration
        if row.collective.upper() == OpKind.ALL_REDUCE.name
        and row.concurrent == 1
        and not row.beside_compute
        for ns in row.durations_ns
    ]
    return fit_transfers([], samples)


SLOW_NETWORK = Detector(
    kinds=(SLOW_NETWORK_KIND,),
    reason_against=lambda run: (
        ""
        if calibrated_cost(run) is not None
        else "the network was not calibrated (augury run --calibrate)"
    ),
    examine=_examine,
)
