"""Detects batches whose compute differs between ranks, on other ranks in other steps."""

from __future__ import annotations

import numpy as np

from augury.core.enums import OpKind
from augury.core.results.diagnosis import Finding, Place
from augury.core.units import format_percent
from augury.diagnose.detectors.detector import Detector, needs_ranks
from augury.diagnose.detectors.ranks.slow_ranks import SMALLER, UNEVEN, has_smaller_batch
from augury.diagnose.examined_run import ExaminedRun
from augury.diagnose.findings import (
    hosts_of,
    is_worth_reporting,
    predicted_finding,
    ratio_figure,
    share_figure,
)
from augury.diagnose.phrases import ranks_and_hosts
from augury.passes.removals.balanced_ranks import BALANCED_RANKS

Table = np.ndarray[tuple[int, int], np.dtype[np.float64]]

FEWEST_STEPS = 4
_LEAST_SPREAD = 0.1
"""Smallest relative difference between the ranks of a step."""
_LEAST_CORRELATION = 0.7
"""A long batch makes both forward and backward long; a disturbance only one of them."""

_ACTION = (
    "Give all ranks batches of equal size and length, such as by sorting into buckets of similar"
    " length."
)


def _examine(run: ExaminedRun) -> list[Finding]:
    forward, backward = _work(run, OpKind.FORWARD), _work(run, OpKind.BACKWARD)
    if forward is None or backward is None:
        return []
    total = forward + backward
    spread = float(np.median(total.max(axis=0) / np.maximum(1.0, total.mean(axis=0)))) - 1
    together = _correlation(_residuals(forward), _residuals(backward))
    slowest = np.argmax(total, axis=0)
    most = float(np.bincount(slowest).max()) / len(slowest)
    if spread < _LEAST_SPREAD:
        return []
    smaller = _with_smaller_batches(run, total)
    if smaller:
        return _smaller_batches(run, smaller, spread)
    if together < _LEAST_CORRELATION:
        return []
    if most > 0.75 and (len(slowest) > FEWEST_STEPS or _is_steady(total, spread)):
        return []  # one rank is slow: a straggler
    gain = run.predict((BALANCED_RANKS, None))
    if gain is None or not is_worth_reporting(run, gain):
        return []
    return [
        predicted_finding(
            gain,
            kind=UNEVEN,
            title="ranks compute for different times in the same step: the slowest takes"
            f" {format_percent(100 * spread)} longer than the mean, a different one each time",
            where=Place(),
            evidence=[
                share_figure("slowest rank over the mean", spread),
                ratio_figure("correlation of forward and backward", together),
                share_figure("steps in which the same rank is slowest", most),
            ],
            action=_ACTION,
        )
    ]


def _is_steady(total: Table, spread: float) -> bool:
    """Whether most of the difference between ranks is the same in all steps."""
    typical = np.median(total, axis=1)
    return float(typical.max() / typical.mean()) - 1 > spread / 2


def _with_smaller_batches(run: ExaminedRun, total: Table) -> list[int]:
    """Returns the ranks with smaller batches, if they are so few that the others are typical;
    otherwise the others are slow ranks (``slow_ranks``)."""
    typical = np.median(total, axis=1)
    faster = np.flatnonzero(typical < SMALLER * np.median(typical)).tolist()
    if len(faster) > (len(typical) - 2) // 2:
        return []
    return [rank for rank in faster if has_smaller_batch(run, rank)]


def _smaller_batches(run: ExaminedRun, ranks: list[int], spread: float) -> list[Finding]:
    """No rank is slow: most ranks take the same time. But the work is not spread evenly either."""
    gain = run.predict((BALANCED_RANKS, None))
    if gain is None or not is_worth_reporting(run, gain):
        return []
    return [
        predicted_finding(
            gain,
            kind=UNEVEN,
            title=f"{ranks_and_hosts(run.graph, ranks)}"
            f" {'takes' if len(ranks) == 1 else 'take'} less time than the other ranks for forward"
            " and backward, but not for updates: its batches are smaller",
            where=Place(ranks=ranks, hosts=hosts_of(run.graph, ranks)),
            evidence=[share_figure("slowest rank over the mean", spread)],
            action=_ACTION,
            command="DistributedSampler",
        )
    ]


def _work(run: ExaminedRun, kind: OpKind) -> Table | None:
    graph, ops = run.graph, run.graph.ops
    rows = np.flatnonzero((ops.kind == kind) & (ops.step >= 0))
    steps, place = np.unique(ops.step[rows], return_inverse=True)
    total: Table = np.zeros((graph.num_ranks, len(steps)))
    np.add.at(total, (ops.rank[rows], place), ops.work_ns[rows])
    return total if total.size and (total > 0).all() else None


def _residuals(total: Table) -> Table:
    """Removes what a rank always has, and what all ranks have in one step."""
    logs = np.log(total)
    logs = logs - np.median(logs, axis=1, keepdims=True)
    return np.asarray(logs - np.median(logs, axis=0, keepdims=True))


def _correlation(one: Table, other: Table) -> float:
    a, b = one.ravel() - one.mean(), other.ravel() - other.mean()
    norm = float(np.sqrt((a * a).sum() * (b * b).sum()))
    return float((a * b).sum()) / norm if norm > 0 else 0.0


def _reason(run: ExaminedRun) -> str:
    if run.is_pipeline:
        return "ranks are stages of a pipeline"
    if run.graph.num_steps < FEWEST_STEPS:
        return f"fewer than {FEWEST_STEPS} steps were recorded"
    return needs_ranks(run)


UNEVEN_BATCHES = Detector(kinds=(UNEVEN,), reason_against=_reason, examine=_examine)
