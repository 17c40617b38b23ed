"""Detects uneven stages of pipelines, and bubbles between micro-batches."""

from __future__ import annotations

import numpy as np

from augury.core.enums import OpKind
from augury.core.results.diagnosis import Finding, Place
from augury.core.units import format_percent
from augury.diagnose.detectors.detector import Detector
from augury.diagnose.examined_run import ExaminedRun
from augury.diagnose.findings import (
    hosts_of,
    is_worth_reporting,
    layers_with_most,
    predicted_finding,
    ratio_figure,
    share_figure,
    time_figure,
)
from augury.diagnose.phrases import ranks_words
from augury.passes.removals.balanced_ranks import BALANCED_RANKS
from augury.passes.removals.free_communication import FREE_COMMUNICATION
from augury.passes.removals.independent_ranks import INDEPENDENT_RANKS

STAGES, BUBBLE = "stage-imbalance", "pipeline-bubble"
_SLOW = 1.1
"""Stages that compute this many times as long as the mean are slow."""
_LEAST_BUBBLE = 0.1


def _examine(run: ExaminedRun) -> list[Finding]:
    graph, ops = run.graph, run.graph.ops
    is_model = np.isin(ops.kind, [OpKind.FORWARD, OpKind.BACKWARD, OpKind.RECOMPUTE])
    rows = np.flatnonzero(is_model & (ops.step >= 0))
    work = np.bincount(ops.rank[rows], weights=ops.work_ns[rows], minlength=len(graph.ranks))
    per_step = work[: graph.num_ranks] / max(1, graph.num_steps)
    return [*_uneven_stages(run, per_step), *_bubble(run)]


def _uneven_stages(run: ExaminedRun, work: np.ndarray) -> list[Finding]:
    mean, graph = float(work.mean()), run.graph
    slow = np.flatnonzero(work > _SLOW * mean).tolist()
    if not slow:
        return []
    gain = run.predict((BALANCED_RANKS, None))
    if gain is None or not is_worth_reporting(run, gain):
        return []
    on = np.isin(graph.ops.rank, slow) & np.isin(graph.ops.kind, [OpKind.FORWARD, OpKind.BACKWARD])
    layers = layers_with_most(graph, np.where(on, graph.ops.work_ns, 0))
    name = layers[0] if len(layers) == 1 else "a stage"
    ratio = float(work[slow].mean()) / mean
    return [
        predicted_finding(
            gain,
            kind=STAGES,
            title=f"{name} ({ranks_words(slow)}) computes {ratio:.2f} times as long as the mean"
            " stage; the others wait for it",
            where=Place(ranks=slow, hosts=hosts_of(graph, slow), layers=layers),
            evidence=[
                ratio_figure("compute against the mean stage", ratio),
                time_figure("compute of the slowest stage per step", float(work.max())),
                time_figure("compute of the mean stage per step", mean),
            ],
            action="Move layers from the slow stage to others, or split its last layers.",
        )
    ]


def _bubble(run: ExaminedRun) -> list[Finding]:
    """The bubble is the time for which ranks wait for each other although all stages take the same
    time and messages none."""
    even = run.predict((BALANCED_RANKS, None), (FREE_COMMUNICATION, None))
    alone = run.predict(
        (BALANCED_RANKS, None), (FREE_COMMUNICATION, None), (INDEPENDENT_RANKS, None)
    )
    if even is None or alone is None:
        return []
    bubble_ns = even.step_ns - alone.step_ns
    share = bubble_ns / max(1, run.step_ns)
    if share < max(_LEAST_BUBBLE, run.noise):
        return []
    return [
        Finding(
            kind=BUBBLE,
            title=f"stages wait {format_percent(100 * share)} of the step for the first and the"
            " last micro-batches to pass through the pipeline",
            where=Place(),
            evidence=[time_figure("bubble", bubble_ns), share_figure("share of the step", share)],
            predicted_step_ns=None,
            interval_ns=None,
            gain_pct=None,
            gain_interval_pct=None,
            confidence="medium",
            action="Use more micro-batches per step, or an interleaved schedule; twice as many"
            " micro-batches halve the bubble.",
        )
    ]


PIPELINE_STAGES = Detector(
    kinds=(STAGES, BUBBLE),
    reason_against=lambda run: "" if run.is_pipeline else "the run has no pipeline",
    examine=_examine,
)
