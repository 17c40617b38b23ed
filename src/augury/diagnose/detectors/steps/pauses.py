"""Detects pauses: single steps that take much longer than the others."""

from __future__ import annotations

import numpy as np

from augury.core.enums import OpKind
from augury.core.results.diagnosis import Confidence, Figure, Finding, Place
from augury.core.units import format_count, format_ns, format_percent
from augury.diagnose.detectors.detector import Detector
from augury.diagnose.detectors.steps.input import WORKERS
from augury.diagnose.examined_run import ExaminedRun
from augury.diagnose.findings import (
    MAX_STEPS,
    count_figure,
    share_figure,
    time_figure,
)
from augury.passes.removals.no_pauses import pauses_ns

PAUSE = "pause"
FEWEST_STEPS = 10
_LONG = 1.3
"""Steps that take this many times the median are paused, if they also exceed the variation."""
_SIGMAS = 6.0
_LEAST_SHARE = 0.02
_LEAST_IRREGULAR_SHARE = 0.08
"""Irregular pauses may be other load on the machine: they count from this share of the time."""
_FEWEST_PAUSES = 2
_REGULAR = 0.25
"""Largest relative deviation of the distances between regular pauses."""

_ACTION = (
    "Find what happens in these steps: garbage collection, checkpoints, evaluation, logging, or"
    " other jobs on the host."
)
_LOAD_ACTION = (
    "Find what the loader does in these steps: workers that start again each epoch, too few"
    " workers, slow files."
)


def _examine(run: ExaminedRun) -> list[Finding]:
    number, dur_ns = run.slowest_rank_series
    usual = float(np.median(dur_ns))
    spread = 1.4826 * float(np.median(np.abs(dur_ns - usual)))
    is_long = dur_ns > max(_LONG * usual, usual + _SIGMAS * spread)
    paused = number[is_long]
    lost_ns = float((dur_ns[is_long] - usual).sum())
    share = lost_ns / float(dur_ns.sum())
    period = _period(paused, len(number))
    least = _LEAST_SHARE if period is not None else max(_LEAST_IRREGULAR_SHARE, run.noise)
    if len(paused) < _FEWEST_PAUSES or share < least or is_long.mean() > 0.4:
        return []
    pause_ns = lost_ns / len(paused)
    often = (
        f"about every {format_count(round(period), 'step')}"
        if period is not None
        else (f"in {len(paused)} of {format_count(len(number), 'step')}")
    )
    is_load = are_loads(run)
    ranks, seen = _paused_ranks(run)
    sure: Confidence = "high" if period is not None and len(paused) >= 3 else "low"
    return [
        Finding(
            kind=PAUSE,
            title=f"a pause of {format_ns(round(pause_ns))} {often} takes"
            f" {format_percent(100 * share)} of the time of the job",
            where=Place(ranks=ranks, steps=paused.tolist()[:MAX_STEPS]),
            evidence=[
                count_figure("paused steps", len(paused)),
                *([count_figure("steps from pause to pause", period)] if period else []),
                time_figure("mean pause", pause_ns),
                time_figure("median step", usual),
                time_figure("mean step", float(dur_ns.mean())),
                share_figure("share of the time", share),
                *seen,
            ],
            # The replayed step is a median, which single long steps do not move.
            predicted_step_ns=None,
            interval_ns=None,
            gain_pct=round(100 * share, 4),
            gain_interval_pct=None,
            confidence=sure,
            action=_LOAD_ACTION if is_load else _ACTION,
            command=WORKERS if is_load else "gc.freeze(); gc.disable()" if period else "",
        )
    ]


def _period(paused: np.ndarray, num_steps: int) -> float | None:
    """Returns the distance between regular pauses; None if they are irregular, or if fewer than
    half of the pauses are there that would be at this distance."""
    if len(paused) < 3:
        return None
    distances = np.diff(paused)
    middle = float(np.median(distances))
    # A pause that was not counted, such as one within a window, leaves a multiple.
    folded = distances / np.maximum(1, np.rint(distances / middle))
    deviation = float(np.median(np.abs(folded - middle))) / middle
    near = float((np.abs(folded - middle) <= max(1.0, _REGULAR * middle)).mean())
    if deviation > _REGULAR or near < 0.7 or middle < 2:
        return None
    return middle if 2 * len(paused) >= num_steps / middle else None


def are_loads(run: ExaminedRun) -> bool:
    """Whether most of the pauses in recorded windows load data: workers start again each epoch, or
    are too slow and deliver several batches at a time, and then none."""
    lost = pauses_ns(run.graph)
    return bool(2 * lost[run.graph.ops.kind == OpKind.DATA].sum() > lost.sum())


def _paused_ranks(run: ExaminedRun) -> tuple[list[int], list[Figure]]:
    """Returns the rank with the longest pauses within recorded windows, if any was recorded."""
    lost = pauses_ns(run.graph)
    by_rank = np.bincount(run.graph.ops.rank, weights=lost, minlength=len(run.graph.ranks))
    if by_rank.max(initial=0.0) <= 0.05 * run.step_ns:
        return [], []
    rank = int(np.argmax(by_rank))
    is_single = by_rank[rank] > 0.7 * by_rank.sum()
    figure = time_figure("longest pause of an operation in a window", float(lost.max()))
    return ([rank] if is_single and len(by_rank) > 1 else []), [figure]


PAUSES = Detector(
    kinds=(PAUSE,),
    reason_against=lambda run: (
        "" if len(run.step_series[0]) >= FEWEST_STEPS
        else f"fewer than {FEWEST_STEPS} steps were timed"
    ),
    examine=_examine,
)  # fmt: skip
