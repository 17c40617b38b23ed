"""Detects steps that wait for input."""

from __future__ import annotations

import msgspec
import numpy as np

from augury.core.enums import OpKind
from augury.core.results.diagnosis import Finding, Place
from augury.core.units import format_ns, format_percent
from augury.diagnose.detectors.detector import Detector, always
from augury.diagnose.examined_run import ExaminedRun
from augury.diagnose.findings import (
    is_worth_reporting,
    predicted_finding,
    share_figure,
    time_figure,
)
from augury.passes.removals.no_input_wait import NO_INPUT_WAIT, gaps_before_forward, input_ops

INPUT = "input"
WORKERS = "DataLoader(..., num_workers=4, prefetch_factor=4, persistent_workers=True)"
_LEAST_SHARE = 0.03


def _examine(run: ExaminedRun) -> list[Finding]:
    graph, ops = run.graph, run.graph.ops
    chosen = input_ops(graph)
    per_rank = np.bincount(
        ops.rank[chosen], weights=ops.work_ns[chosen], minlength=len(graph.ranks)
    ) / max(1, graph.num_steps)
    slowest = int(np.argmax(per_rank))
    input_ns = float(per_rank[slowest])
    of_mean = run.predict_mean((NO_INPUT_WAIT, None)) if _comes_in_bursts(run, slowest) else None
    share = input_ns / max(1, run.step_ns if of_mean is None else run.mean_step_ns)
    if share < _LEAST_SHARE:
        return []
    gain = of_mean or run.predict((NO_INPUT_WAIT, None))
    if gain is None or not is_worth_reporting(run, gain):
        return []
    unknown = gaps_before_forward(graph) & (ops.rank == slowest)
    loads = (ops.kind == OpKind.DATA) & (ops.rank == slowest)
    unknown_ns = float(ops.work_ns[unknown].sum()) / max(1, graph.num_steps)
    load_ns = float(ops.work_ns[loads].sum()) / max(1, graph.num_steps)
    is_known = load_ns > unknown_ns
    title = f"steps wait {format_ns(round(input_ns))} for input"
    if not is_known:
        title = f"{format_ns(round(input_ns))} pass before forward in no recorded operation:"
        title += " probably input"
    found = predicted_finding(
        gain,
        kind=INPUT,
        title=f"{title} ({format_percent(100 * share)} of the {'mean ' if of_mean else ''}step)",
        where=Place(),
        evidence=[
            time_figure("loading per step", load_ns),
            time_figure("unexplained time before forward", unknown_ns),
            share_figure("share of the step", share),
        ],
        action="Load and transform data in worker processes, several batches ahead.",
        command=WORKERS,
        at_most="high" if is_known and graph.num_steps > 1 else "medium",
    )
    # The replayed step is a median, which bursts do not move.
    return [found if of_mean is None else msgspec.structs.replace(found, predicted_step_ns=None)]


def _comes_in_bursts(run: ExaminedRun, rank: int) -> bool:
    """Whether few steps wait for most of the input, and the median step for little: loader workers
    that are too slow deliver several batches at a time, and then none."""
    ops = run.graph.ops
    rows = np.flatnonzero((ops.kind == OpKind.DATA) & (ops.rank == rank) & (ops.step >= 0))
    steps = np.unique(ops.step[ops.step >= 0])
    place = np.searchsorted(steps, ops.step[rows])
    per_step = np.bincount(place, weights=ops.work_ns[rows], minlength=len(steps))
    return bool(np.median(per_step) < per_step.mean() / 2) if len(steps) else False


INPUT_WAIT = Detector(kinds=(INPUT,), reason_against=always, examine=_examine)
