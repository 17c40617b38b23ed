"""Compares alternating runs without and with a change, pair by pair.

Slow drift is the same for both runs of a pair and cancels. The differences between pairs show how
well the gain is known. A few pairs may agree by chance, so the uncertainty of each single pair
counts as well.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, variance

import msgspec

from augury.core.measured_step import PRIOR_FREEDOM, MeasuredRun, student
from augury.core.plan.plan import Plan
from augury.core.results.comparison import Comparison, ComputeChange
from augury.core.trace.trace import Trace
from augury.costs.prediction_interval import BETWEEN_RUNS, SIGMAS_OF_90_PCT
from augury.diagnose.compare_runs import compare_runs
from augury.diagnose.part_changes import mean_changes
from augury.predict.judge_plan import judged_by, not_applied


def compare_repeats(pairs: Sequence[tuple[Trace, Trace]], plan: Plan | None = None) -> Comparison:
    """``pairs`` are runs before and after the change, in the order of their recording."""
    if len(pairs) == 1:
        return compare_runs(*pairs[0], plan)
    each = [compare_runs(before, after) for before, after in pairs]
    change, reach = _mean(
        [math.log1p(-one.gain_pct / 100) for one in each],
        fmean(_variance_of(one.gain_interval_pct) for one in each),
    )
    low, high = (100 * -math.expm1(min(50.0, change + side * reach)) for side in (1, -1))
    found = Comparison(
        before=_pooled([one.before for one in each]),
        after=_pooled([one.after for one in each]),
        gain_pct=round(100 * -math.expm1(change), 4),
        gain_interval_pct=(round(low, 4), round(high, 4)),
        gain_source=_source(each),
        machine_change_pct=_machine_change_pct(each),
        num_pairs=len(each),
        compute_changes=_compute_changes(each),
        phase_changes=mean_changes([one.phase_changes for one in each]),
        kind_changes=mean_changes([one.kind_changes for one in each]),
        layer_changes=mean_changes([one.layer_changes for one in each]),
        operation_changes=mean_changes([one.operation_changes for one in each]),
    )
    if plan is None:
        return found
    missing = not_applied(after for _, after in pairs)
    return judged_by(msgspec.structs.replace(found, not_applied=missing), plan)


def _mean(values: Sequence[float], usual: float) -> tuple[float, float]:
    """Mean, and half the width of its 90 % interval; ``usual`` is the expected variance."""
    seen, freedom = variance(values), len(values) - 1
    if seen < usual:
        seen = (freedom * seen + PRIOR_FREEDOM * usual) / (freedom + PRIOR_FREEDOM)
        freedom += PRIOR_FREEDOM
    return fmean(values), student(freedom) * math.sqrt(seen / len(values))


def _variance_of(gain_interval_pct: tuple[float, float]) -> float:
    low, high = (math.log1p(-edge / 100) for edge in gain_interval_pct)
    return ((low - high) / 2 / SIGMAS_OF_90_PCT) ** 2


def _pooled(runs: Sequence[MeasuredRun]) -> MeasuredRun:
    widths = [math.log(one.high_ns / max(1, one.low_ns)) / 2 / SIGMAS_OF_90_PCT for one in runs]
    usual = fmean(width**2 for width in widths) + BETWEEN_RUNS**2
    level, reach = _mean([math.log(one.step_ns) for one in runs], usual)
    loads = [one.other_load for one in runs if one.other_load is not None]
    delays = [one.delay_pct for one in runs if one.delay_pct is not None]
    return MeasuredRun(
        num_ranks=runs[0].num_ranks,
        num_steps=sum(one.num_steps for one in runs),
        step_ns=round(math.exp(level)),
        low_ns=round(math.exp(level - reach)),
        high_ns=round(math.exp(level + reach)),
        drift_pct=max(one.drift_pct for one in runs),
        delay_pct=round(fmean(delays), 4) if delays else None,
        other_load=max(loads, default=None),
    )


def _source(each: Sequence[Comparison]) -> str:
    return "undelayed" if any(one.gain_source == "undelayed" for one in each) else "steps"


def _machine_change_pct(each: Sequence[Comparison]) -> float | None:
    changes = [one.machine_change_pct for one in each if one.machine_change_pct is not None]
    return round(fmean(changes), 4) if changes else None


def _compute_changes(each: Sequence[Comparison]) -> list[ComputeChange]:
    """Kinds of operations that changed in every pair, and in the same direction."""
    found = []
    for first in each[0].compute_changes:
        same = [
            change
            for one in each
            for change in one.compute_changes
            if change.kind == first.kind and change.change_pct * first.change_pct > 0
        ]
        if len(same) == len(each):
            before_ns = round(fmean(change.before_ns for change in same))
            after_ns = round(fmean(change.after_ns for change in same))
            found.append(
                msgspec.structs.replace(
                    first,
                    before_ns=before_ns,
                    after_ns=after_ns,
                    change_pct=round(100 * (after_ns / before_ns - 1), 4),
                )
            )
    return found
