"""Detects devices that idle because their host launches work too slowly."""

from __future__ import annotations

import numpy as np

from augury.core.enums import OpKind
from augury.core.results.diagnosis import Figure, Finding, Place
from augury.core.units import format_percent
from augury.diagnose.detectors.detector import Detector
from augury.diagnose.examined_run import ExaminedRun
from augury.diagnose.findings import (
    count_figure,
    is_worth_reporting,
    predicted_finding,
    share_figure,
    time_figure,
)
from augury.passes.removals.device_ends import on_device
from augury.passes.removals.fast_host import FAST_HOST, NO_DEVICE, host_ops

LAUNCH = "launch-bound"
_MOST_NAMES = 3


def _examine(run: ExaminedRun) -> list[Finding]:
    gain = run.predict((FAST_HOST, None))
    if gain is None or not is_worth_reporting(run, gain):
        return []
    graph, ops = run.graph, run.graph.ops
    kernels = on_device(graph)
    busy = _busiest_stream_share(run)
    launches = ops.kind == OpKind.LAUNCH
    per_step = max(1, graph.num_ranks * graph.num_steps)
    return [
        predicted_finding(
            gain,
            kind=LAUNCH,
            title="devices wait for their host to launch kernels: the busiest stream is busy for"
            f" {format_percent(100 * busy)} of the step",
            where=Place(),
            evidence=[
                share_figure("busy share of the busiest stream", busy),
                count_figure("kernels per rank and step", round(kernels.sum() / per_step)),
                time_figure("mean kernel", float(ops.work_ns[kernels].mean())),
                time_figure("time of launches per rank and step",
                            float(ops.work_ns[launches].sum()) / per_step),
                *_slowest_host_operations(run),
            ],
            action="Launch less often; the prediction is for launches that take no time.",
            command="torch.compile(model, mode='reduce-overhead')",
            at_most="medium",
        )
    ]  # fmt: skip


def _slowest_host_operations(run: ExaminedRun) -> list[Figure]:
    """Returns the times of the host operations that take most of it, per rank and step."""
    graph, ops = run.graph, run.graph.ops
    rows = np.flatnonzero(host_ops(graph))
    totals = np.bincount(ops.name[rows], weights=ops.work_ns[rows])
    per_step = max(1, graph.num_ranks * graph.num_steps)
    return [
        time_figure(f"host time of {graph.strings[name]}", totals[name] / per_step)
        for name in np.argsort(-totals)[:_MOST_NAMES].tolist()
        if totals[name] > 0
    ]


def _busiest_stream_share(run: ExaminedRun) -> float:
    graph, use = run.graph, run.timeline.utilization
    streams = np.unique(graph.ops.resource[on_device(graph)])
    per_step = use.busy_ns[streams].max(initial=0) / max(1, graph.num_steps)
    return min(1.0, float(per_step) / max(1, run.step_ns))


LAUNCH_BOUND = Detector(
    kinds=(LAUNCH,),
    reason_against=lambda run: "" if run.is_on_devices else NO_DEVICE,
    examine=_examine,
)
