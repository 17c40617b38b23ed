"""Makes Findings from predicted gains, and decides which of them are worth reporting."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from augury.core.graph.graph import NONE, Graph
from augury.core.results.diagnosis import Confidence, Figure, Finding, Place
from augury.diagnose.examined_run import ExaminedRun, PredictedGain

MAX_LAYERS = 5
MAX_STEPS = 20
"""Entries of a Place: a run may have thousands of layers and steps."""

_RANKING: tuple[Confidence, ...] = ("low", "medium", "high")


def is_worth_reporting(run: ExaminedRun, gain: PredictedGain | None) -> bool:
    """Whether a gain exceeds the noise and the error of its prediction."""
    return gain is not None and gain.gain_pct >= 100 * run.noise and gain.interval_pct[0] > 0


def predicted_finding(
    gain: PredictedGain,
    *,
    kind: str,
    title: str,
    where: Place,
    evidence: Sequence[Figure],
    action: str,
    command: str = "",
    applied_by: str = "",
    at_most: Confidence = "high",
) -> Finding:
    """Returns a Finding whose fix was replayed. It is as sure as ``at_most`` allows; a gain that is
    small against its error is less sure."""
    low, _ = gain.interval_pct
    sure: Confidence = "high" if low > gain.gain_pct / 2 else "medium"
    return Finding(
        kind=kind,
        title=title,
        where=where,
        evidence=list(evidence),
        predicted_step_ns=gain.step_ns,
        interval_ns=gain.interval_ns,
        gain_pct=round(gain.gain_pct, 4),
        gain_interval_pct=(round(low, 4), round(gain.interval_pct[1], 4)),
        confidence=min(sure, at_most, key=_RANKING.index),
        action=action,
        command=command,
        applied_by="schedule" if applied_by == "schedule" else "",
    )


def hosts_of(graph: Graph, ranks: Sequence[int]) -> list[str]:
    """Returns the known hosts of ranks, each once."""
    names = (graph.strings[int(graph.ranks.host[rank])] for rank in ranks)
    return list(dict.fromkeys(name for name in names if name))


def layers_with_most(graph: Graph, weights: np.ndarray) -> list[str]:
    """Returns the layers with the largest sums of ``weights``, one per operation; none if most of
    the weight has no layer."""
    layer = graph.ops.layer
    sums: dict[str, float] = {}
    positive = np.flatnonzero((weights > 0) & (layer != NONE))
    numbers, place = np.unique(layer[positive], return_inverse=True)
    totals = np.bincount(place, weights=weights[positive], minlength=len(numbers))
    for number, total in zip(numbers.tolist(), totals.tolist(), strict=True):
        name = graph.strings[number]
        if name:
            sums[name] = total
    total = float(weights[weights > 0].sum())
    if not sums or sum(sums.values()) < total / 2:
        return []
    ranked = sorted(sums.items(), key=lambda item: -item[1])
    return [name for name, weight in ranked[:MAX_LAYERS] if weight > 0.05 * total]


def time_figure(name: str, value_ns: float) -> Figure:
    return Figure(name=name, value=round(float(value_ns)), unit="ns")


def share_figure(name: str, share: float) -> Figure:
    """``share`` is a part of one."""
    return Figure(name=name, value=round(100 * float(share), 4), unit="%")


def ratio_figure(name: str, ratio: float) -> Figure:
    return Figure(name=name, value=round(float(ratio), 4), unit="x")


def count_figure(name: str, value: float) -> Figure:
    return Figure(name=name, value=float(value))
