"""Summarizes a Timeline as a ReplayResult or, for a change, as a WhatIfResult."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from augury.core.enums import OpKind, ResourceKind, Role
from augury.core.graph.graph import MeasuredSteps
from augury.core.ledger import Ledger
from augury.core.measured_step import median_ns, worker_steps
from augury.core.results.prediction import Prediction, error_pct
from augury.core.results.replay import (
    HolderResult,
    PathSegment,
    PathSummary,
    RankResult,
    ReplayResult,
    ResourceResult,
    Share,
    WhatIfResult,
)
from augury.core.timeline import Holder, PeakMemory, Reason, Timeline
from augury.predict.prediction import predict_step

MAX_HOLDERS = 10
"""Entries of one rank's peak memory; a model may have thousands of layers."""


def summarize(
    timeline: Timeline, prediction: Prediction | None = None, *, ledger: Ledger | None = None
) -> ReplayResult:
    """``ledger`` holds warnings in addition to those of the graph and of the replay."""
    graph = timeline.graph
    prediction = prediction or predict_step(timeline, None)
    return ReplayResult(
        num_ranks=graph.num_ranks,
        num_servers=len(graph.ranks) - graph.num_ranks,
        num_ops=graph.num_ops,
        num_steps=graph.num_steps,
        num_simulated_ops=timeline.num_simulated_ops,
        measured_step_ns=prediction.measured_step_ns,
        predicted_step_ns=prediction.predicted_step_ns,
        interval_ns=prediction.interval_ns,
        error_pct=prediction.error_pct,
        unexplained_pct=_unexplained_pct(worker_steps(graph)),
        makespan_ns=timeline.makespan_ns,
        ranks=_ranks(timeline),
        resources=_resources(timeline),
        critical_path=_segments(timeline),
        critical_path_summary=_path_summary(timeline),
        ledger=list(graph.ledger.merged(timeline.ledger).merged(ledger or Ledger())),
    )


def summarize_change(
    timeline: Timeline, prediction: Prediction, *, changes: list[str], ledger: Ledger | None = None
) -> WhatIfResult:
    """``prediction`` has the baseline that the gain is counted from."""
    assert prediction.baseline_step_ns is not None
    assert prediction.gain_pct is not None
    result = summarize(timeline, prediction, ledger=ledger)
    fields = {name: getattr(result, name) for name in result.__struct_fields__}
    return WhatIfResult(
        **fields,
        changes=changes,
        baseline_step_ns=prediction.baseline_step_ns,
        gain_pct=round(prediction.gain_pct, 4),
    )


def _unexplained_pct(measured: MeasuredSteps) -> float | None:
    """Share of the measured steps, over all ranks, that no recorded operation explains."""
    total = int(measured.dur_ns.sum())
    if total == 0:
        return None
    return round(100 * (1 - int(measured.explained_ns.sum()) / total), 4)


def _ranks(timeline: Timeline) -> list[RankResult]:
    peaks = {peak.rank: peak for peak in timeline.peak_memory}
    graph, rows = timeline.graph, timeline.graph.measured
    measured = {rank: median_ns(rows.dur_ns[rows.rank == rank]) for rank in set(rows.rank.tolist())}
    return [
        _rank(timeline, rank, measured.get(rank), peaks.get(rank))
        for rank in range(len(graph.ranks))
    ]


def _rank(
    timeline: Timeline, rank: int, measured_ns: int | None, peak: PeakMemory | None
) -> RankResult:
    graph = timeline.graph
    predicted_ns = timeline.rank_step_ns[rank] or None
    holders = peak.holders if peak else ()
    return RankResult(
        rank=rank,
        role=Role(int(graph.ranks.role[rank])).label,
        host=graph.strings[int(graph.ranks.host[rank])],
        measured_step_ns=measured_ns,
        predicted_step_ns=predicted_ns,
        error_pct=error_pct(predicted_ns, measured_ns),
        peak_memory_bytes=peak.size_bytes if peak else None,
        peak_memory_at_ns=peak.at_ns if peak else None,
        peak_memory_by_kind=_by_kind(holders),
        peak_memory_holders=[
            HolderResult(kind=h.kind.label, layer=h.layer, size_bytes=h.size_bytes)
            for h in holders[:MAX_HOLDERS]
        ],
        peak_memory_other_bytes=sum(h.size_bytes for h in holders[MAX_HOLDERS:]),
    )


def _by_kind(holders: tuple[Holder, ...]) -> dict[str, int]:
    """Bytes by kind, largest first."""
    sizes: Counter[str] = Counter()
    for holder in holders:
        sizes[holder.kind.label] += holder.size_bytes
    return dict(sizes.most_common())


def _resources(timeline: Timeline) -> list[ResourceResult]:
    graph, use = timeline.graph, timeline.utilization
    window = np.maximum(use.busy_ns + use.waiting_ns + use.idle_ns, 1)
    shares = [
        np.round(100 * values / window, 4).tolist()
        for values in (use.busy_ns, use.waiting_ns, use.idle_ns)
    ]
    rows = zip(
        graph.resources.name.tolist(),
        graph.resources.rank.tolist(),
        graph.resources.kind.tolist(),
        use.num_ops.tolist(),
        *shares,
        strict=True,
    )
    return [
        ResourceResult(
            name=graph.strings[name],
            rank=rank if rank >= 0 else None,
            kind=ResourceKind(kind).label,
            num_ops=num_ops,
            busy_pct=busy,
            waiting_pct=waiting,
            idle_pct=idle,
        )
        for name, rank, kind, num_ops, busy, waiting, idle in rows
    ]


def _segments(timeline: Timeline) -> list[PathSegment]:
    graph, path = timeline.graph, timeline.critical_path
    ops = graph.ops
    # A path may have a hundred thousand segments, with few different names.
    rows = zip(
        path.op.tolist(),
        ops.rank[path.op].tolist(),
        ops.step[path.op].tolist(),
        _labels(ops.name[path.op], graph.strings.__getitem__),
        _labels(ops.kind[path.op], lambda kind: OpKind(kind).label),
        _labels(ops.layer[path.op], graph.strings.__getitem__),
        _labels(ops.resource[path.op], graph.resource_name),
        path.start_ns.tolist(),
        path.dur_ns.tolist(),
        _labels(path.reason, lambda reason: Reason(reason).label),
        strict=True,
    )
    return [
        PathSegment(
            op=op,
            rank=rank,
            step=step if step >= 0 else None,
            name=name,
            kind=kind,
            layer=layer,
            resource=resource,
            start_ns=start,
            dur_ns=dur,
            reason=reason,
        )
        for op, rank, step, name, kind, layer, resource, start, dur, reason in rows
    ]


def _labels(numbers: NDArray[Any], label: Callable[[int], str]) -> list[str]:
    """Returns the label of each number, computed once for all equal ones."""
    values, inverse, _ = np.unique(numbers, return_inverse=True, return_counts=True)
    labels = [label(value) for value in values.tolist()]
    return [labels[i] for i in inverse.tolist()]


def _path_summary(timeline: Timeline) -> PathSummary:
    ops, path = timeline.graph.ops, timeline.critical_path

    def place(rank: int) -> str:
        is_server = timeline.graph.ranks.role[rank] == Role.SERVER
        return f"server {rank}" if is_server else f"rank {rank}"

    return PathSummary(
        dur_ns=int(path.dur_ns.sum()),
        by_kind=_shares(ops.kind[path.op], path.dur_ns, lambda k: OpKind(k).label),
        by_reason=_shares(path.reason, path.dur_ns, lambda r: Reason(r).label),
        by_rank=_shares(ops.rank[path.op], path.dur_ns, place),
    )


def _shares(
    keys: NDArray[Any], dur_ns: NDArray[np.int64], label: Callable[[int], str]
) -> list[Share]:
    values, inverse, counts = np.unique(keys, return_inverse=True, return_counts=True)
    sums = np.zeros(len(values), dtype=np.int64)
    np.add.at(sums, inverse, dur_ns)
    total = max(1, int(dur_ns.sum()))
    shares = [
        Share(
            name=label(value),
            dur_ns=dur,
            share_pct=round(100 * dur / total, 4),
            num_segments=count,
        )
        for value, dur, count in zip(values.tolist(), sums.tolist(), counts.tolist(), strict=True)
    ]
    return sorted(shares, key=lambda share: -share.dur_ns)
