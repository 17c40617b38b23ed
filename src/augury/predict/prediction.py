"""Computes the Prediction of a replayed step: interval, error against the measured step, memory."""

from __future__ import annotations

import math

from augury.core.ledger import Ledger
from augury.core.measured_step import measured_step_ns, measured_steps
from augury.core.results.prediction import Prediction
from augury.core.timeline import Timeline
from augury.costs.prediction_interval import (
    Representation,
    interval_ns,
    note_unrepresentative,
    representation,
)
from augury.replay.utilization import step_durations_ns


def predict_step(
    timeline: Timeline,
    recorded: Representation | None,
    *,
    baseline_ns: int | None = None,
    model_error: float = 0.0,
) -> Prediction:
    """``recorded`` describes the run that the prediction starts from; without it there is no
    interval. ``model_error`` is the standard error of the change's model, as a share."""
    interval = None
    # Half of the unresolved waits may belong to the ranks that were recorded.
    model_error = math.hypot(model_error, timeline.graph.unresolved_wait / 2)
    if recorded is not None:
        interval = interval_ns(timeline.step_ns, recorded, model_error=model_error)
    return Prediction(
        predicted_step_ns=timeline.step_ns,
        interval_ns=interval,
        baseline_step_ns=baseline_ns,
        # Recorded steps measure the unchanged run only.
        measured_step_ns=measured_step_ns(timeline.graph) if baseline_ns is None else None,
        model_error=model_error,
        peak_memory_bytes=max((peak.size_bytes for peak in timeline.peak_memory), default=None),
    )


def representation_of(replayed: Timeline) -> Representation | None:
    """How well the recorded windows represent the run, from the replay of the unchanged graph;
    None where the graph has no steps of a recorded run."""
    graph = replayed.graph
    if graph.num_steps < 2 or len(graph.carries):
        return None
    slowest = max(range(len(replayed.rank_step_ns)), key=replayed.rank_step_ns.__getitem__)
    steps = replayed.rank_steps.of_rank(slowest)
    return representation(steps.step, step_durations_ns(steps), *measured_steps(graph))


def warnings_of(recorded: Representation | None) -> Ledger:
    """Warns where the recorded windows do not represent the run."""
    ledger = Ledger()
    if recorded is not None:
        note_unrepresentative(recorded, ledger)
    return ledger
