"""Detects communication that compute waits for."""

from __future__ import annotations

import shlex

import numpy as np

from augury.core.enums import are_communication
from augury.core.errors import AuguryError
from augury.core.graph.graph import NONE
from augury.core.results.diagnosis import Figure, Finding, Place
from augury.core.units import format_ns, format_percent
from augury.diagnose.detectors.detector import Detector
from augury.diagnose.examined_run import ExaminedRun, PredictedGain
from augury.diagnose.findings import (
    count_figure,
    is_worth_reporting,
    predicted_finding,
    share_figure,
    time_figure,
)
from augury.passes.bandwidth import BANDWIDTH, Rate
from augury.passes.communication_order import order_error
from augury.passes.removals.free_communication import FREE_COMMUNICATION
from augury.predict.schedule_assess import assess, choose_policies
from augury.predict.schedule_case import ScheduleCase, open_case

EXPOSED = "exposed-communication"
_LEAST_UNSCHEDULED = 0.25
"""Communication that no other order of gradients hides is reported from this share of the step:
only other hardware or other training changes it."""


def _examine(run: ExaminedRun) -> list[Finding]:
    free = run.predict((FREE_COMMUNICATION, None))
    if free is None or not is_worth_reporting(run, free):
        return []
    exposed_ns = run.step_ns - free.step_ns
    share = exposed_ns / max(1, run.step_ns)
    evidence = [
        time_figure("exposed communication per step", exposed_ns),
        share_figure("share of the step", share),
        *split_of_collectives(run),
    ]
    title = f"{format_ns(exposed_ns)} of communication are exposed in each step"
    title += f" ({format_percent(100 * share)} of the step)"
    scheduled = _scheduled(run, least_ns=free.step_ns)
    if scheduled is not None and is_worth_reporting(run, scheduled):
        return [
            predicted_finding(
                scheduled,
                kind=EXPOSED,
                title=f"{title}; another order of gradients hides part of it",
                where=Place(),
                evidence=evidence,
                action="Let Augury order the gradients, and run the job with the plan.",
                command=f"augury schedule {shlex.quote(str(run.opened.path))} -o plan.json",
                applied_by="schedule",
                at_most="medium",
            )
        ]
    if share < _LEAST_UNSCHEDULED:
        return []
    faster = run.predict((BANDWIDTH, Rate(factor=2.0)))
    if faster is not None:
        evidence.append(time_figure("step with twice the bandwidth", faster.step_ns))
    return [
        Finding(
            kind=EXPOSED,
            title=title,
            where=Place(),
            evidence=evidence,
            # No change of the program hides it; a faster network is no fix of a fault.
            predicted_step_ns=None,
            interval_ns=None,
            gain_pct=None,
            gain_interval_pct=None,
            confidence="medium",
            action="Send less, or over a faster network: half precision, compression, gradient"
            " accumulation, larger batches.",
            command=f"augury whatif {shlex.quote(str(run.opened.path))} --bandwidth 2x",
        )
    ]


def _scheduled(run: ExaminedRun, *, least_ns: int) -> PredictedGain | None:
    """Returns the gain of the best order of gradients; None if the run states no order. No order
    makes steps shorter than ``least_ns``, those without any communication."""
    if not len(run.graph.gradients) or not run.opened.is_recorded:
        return None
    try:
        case = open_case(run.opened)
        best = assess(case, choose_policies("augury"), progress=run.opened.progress).best
    except AuguryError as error:
        run.ledger.note(
            "order-not-assessed", "no order of gradients could be assessed", example=error.cause
        )
        return None
    if best.result.trouble is not None:
        return None
    step_ns, interval_ns = best.result.step_ns, best.result.interval_ns
    if step_ns < least_ns:
        step_ns, interval_ns = least_ns, None
    baseline_ns = _replayed_as_recorded(run, case) or case.baseline_ns
    model_error = order_error(best.order).relative
    return run.gain(step_ns, interval_ns, model_error=model_error, baseline_ns=baseline_ns)


def _replayed_as_recorded(run: ExaminedRun, case: ScheduleCase) -> int | None:
    """Returns the step with the recorded order by the model that predicts others, so that an error
    of the model is not taken for a gain."""
    if case.scheduled is None:
        return None
    try:
        return run.replay(case.scheduled.follow(case.baseline_order)).step_ns
    except AuguryError:
        return None


def split_of_collectives(run: ExaminedRun) -> list[Figure]:
    """Splits the time of collectives: waiting for the last rank to arrive, and transfer."""
    graph, timeline = run.graph, run.timeline
    ops = graph.ops
    rows = np.flatnonzero(are_communication(ops.kind) & (ops.gang != NONE) & (ops.step >= 0))
    if not len(rows):
        return []
    gang = ops.gang[rows]
    arrived = np.zeros(graph.num_gangs, dtype=np.int64)
    np.maximum.at(arrived, gang, timeline.start_ns[rows])
    total = (timeline.end_ns - timeline.start_ns)[rows]
    waiting = np.minimum(arrived[gang] - timeline.start_ns[rows], total)
    per_rank_step = max(1, graph.num_ranks * graph.num_steps)
    return [
        time_figure("waiting for the last rank, per rank and step", waiting.sum() / per_rank_step),
        time_figure("transfers, per rank and step", (total - waiting).sum() / per_rank_step),
        count_figure("collectives per step", len(np.unique(gang)) / max(1, graph.num_steps)),
    ]


def _reason(run: ExaminedRun) -> str:
    has_any = bool(are_communication(run.graph.ops.kind).any())
    return "" if has_any else "the run does not communicate"


EXPOSED_COMMUNICATION = Detector(kinds=(EXPOSED,), reason_against=_reason, examine=_examine)
