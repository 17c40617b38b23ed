"""Detects buckets of gradients that are too small, too large, or filled in the wrong order."""

from __future__ import annotations

import numpy as np

from augury.core.results.diagnosis import Figure, Finding, Place
from augury.core.units import format_bytes, format_count
from augury.diagnose.detectors.detector import Detector
from augury.diagnose.examined_run import ExaminedRun, PredictedGain
from augury.diagnose.findings import (
    count_figure,
    is_worth_reporting,
    predicted_finding,
    time_figure,
)
from augury.passes.buckets import BUCKETS, BucketCaps
from augury.schedule.order_parts import fill_buckets

SMALL, LARGE, FIRST, ORDER = (
    "buckets-too-small", "bucket-too-large", "first-bucket", "parameter-order",
)  # fmt: skip

_MIB = 1 << 20
_FIRST_CAP = 1 * _MIB
_CAPS = tuple(round(size * _MIB) for size in (0.25, 0.5, 1, 2, 5, 10, 25, 50, 100))
_EQUAL_PCT = 0.5
"""Gains that differ by less are equal; the candidate nearest to the default wins."""


def _examine(run: ExaminedRun) -> list[Finding]:
    graph = run.graph
    sizes, recorded = _recorded_buckets(run)
    baseline_ns = _replayed_as_recorded(run, sizes, recorded)
    gains: dict[tuple[tuple[int, ...], ...], tuple[BucketCaps, PredictedGain]] = {}
    for caps in _candidates(sum(sizes)):
        layout = tuple(tuple(bucket) for bucket in fill_buckets(sizes, caps.caps_bytes))
        if layout in gains or layout == recorded:
            continue
        gain = run.predict((BUCKETS, caps), baseline_ns=baseline_ns)
        if gain is not None:
            gains[layout] = caps, gain
    worth = {layout: found for layout, found in gains.items() if is_worth_reporting(run, found[1])}
    if not worth:
        return []
    most = max(gain.gain_pct for _, gain in worth.values())
    layout = next(one for one, (_, gain) in worth.items() if gain.gain_pct >= most - _EQUAL_PCT)
    caps, gain = worth[layout]
    return [_finding(run, gain, caps, layout, recorded, sizes, graph.gradients.name)]


def _finding(
    run: ExaminedRun,
    gain: PredictedGain,
    caps: BucketCaps,
    layout: tuple[tuple[int, ...], ...],
    recorded: tuple[tuple[int, ...], ...],
    sizes: list[int],
    _names: np.ndarray,
) -> Finding:
    largest = max(sum(sizes[i] for i in bucket) for bucket in recorded)
    before, after = len(recorded), len(layout)
    if after < before:
        kind = SMALL
        title = f"gradients travel in {format_count(before, 'bucket')} of"
        title += f" {format_bytes(round(sum(sizes) / before))} on average; {after} would be faster"
    elif after > before:
        kind = LARGE
        title = f"a bucket of {format_bytes(largest)} delays communication;"
        title += f" {format_count(after, 'bucket')} overlap more of it with backward"
    elif len(recorded[0]) != len(layout[0]):
        kind = FIRST
        title = "the first bucket leaves too late or too early"
    else:
        kind = ORDER
        title = "buckets are not filled in the order in which gradients become ready"
    cap_mib = caps.caps_bytes[-1] / _MIB
    evidence: list[Figure] = [
        count_figure("buckets per step", before),
        count_figure("buckets per step with the fix", after),
        Figure(name="largest bucket", value=largest, unit="bytes"),
        Figure(name="gradients", value=sum(sizes), unit="bytes"),
        time_figure("overhead of a collective", _overhead_ns(run)),
    ]
    return predicted_finding(
        gain,
        kind=kind,
        title=title,
        where=Place(size_bytes=largest),
        evidence=evidence,
        action=f"Set DDP's bucket size to {cap_mib:g} MiB, or let Augury choose a list of sizes.",
        command=f"DistributedDataParallel(..., bucket_cap_mb={cap_mib:g})",
        applied_by="schedule",
    )


def _replayed_as_recorded(
    run: ExaminedRun, sizes: list[int], recorded: tuple[tuple[int, ...], ...]
) -> int | None:
    """Returns the step with the recorded buckets by the model that predicts others, so that an
    error of the model is not taken for a gain; None if no capacities lead to these buckets."""
    caps = tuple(sum(sizes[i] for i in bucket) for bucket in recorded)
    if tuple(tuple(bucket) for bucket in fill_buckets(sizes, caps)) != recorded:
        return None
    same = run.predict((BUCKETS, BucketCaps(caps)))
    return None if same is None else same.step_ns


def _overhead_ns(run: ExaminedRun) -> float:
    """Returns the time of a collective of one byte."""
    kinds = set(run.graph.ops.kind[run.graph.gradients.carried_by].tolist())
    costs = [cost.time_ns(1) for kind, cost in run.scene.costs.items() if int(kind) in kinds]
    return float(min(costs, default=0))


def _recorded_buckets(run: ExaminedRun) -> tuple[list[int], tuple[tuple[int, ...], ...]]:
    """Returns the sizes of the gradients of one rank and step in the order of backward, and the
    buckets that carry them."""
    gradients = run.graph.gradients
    own = (gradients.rank == gradients.rank[0]) & (gradients.step == gradients.step[0])
    rows = np.flatnonzero(own)
    buckets: dict[int, list[int]] = {}
    for i, row in enumerate(rows.tolist()):
        buckets.setdefault(int(gradients.carried_by[row]), []).append(i)
    found = tuple(tuple(members) for _, members in sorted(buckets.items()))
    return gradients.size_bytes[rows].tolist(), found


def _candidates(total_bytes: int) -> list[BucketCaps]:
    """Capacities to try, those near the default first."""
    near = sorted(_CAPS, key=lambda cap: abs(np.log(cap / (25 * _MIB))))
    useful = [cap for cap in near if total_bytes / cap <= 400]
    with_first = [BucketCaps((min(_FIRST_CAP, cap), cap)) for cap in useful]
    return with_first + [BucketCaps((cap,)) for cap in useful]


def _reason(run: ExaminedRun) -> str:
    if len(run.graph.gradients):
        return ""
    return "the run does not say which gradient travels in which bucket"


BUCKET_SIZES = Detector(
    kinds=(SMALL, LARGE, FIRST, ORDER), reason_against=_reason, examine=_examine
)
