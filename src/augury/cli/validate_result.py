"""A comparison as the typed result that reports show."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from augury.oracle.fitting.corrections import CONSTANTS
from augury.oracle.fitting.held_out import num_covered
from augury.report.oracle_result import (
    HeldOutResult,
    ProjectionResult,
    RankingResult,
    ValidatedRow,
    ValidationResult,
)

if TYPE_CHECKING:
    from augury.core.cluster.cluster import Cluster
    from augury.oracle.fitting.corrections import Constants
    from augury.oracle.fitting.held_out import HeldOut
    from augury.oracle.fitting.measured_table import Row
    from augury.oracle.fitting.validate import Compared, Projection, Ranking


def result_of(
    compared: Sequence[Compared],
    rankings: Sequence[Ranking],
    projections: Sequence[Projection],
    *,
    cluster: Cluster,
    constants: Constants,
    fitted_on: Sequence[Row],
    held_out: Sequence[HeldOut] = (),
) -> ValidationResult:
    fitted = set(fitted_on)
    return ValidationResult(
        cluster=cluster.name,
        fitted_on=constants.fitted_on,
        is_held_out=not any(one.row in fitted for one in compared),
        constants={one.name: float(getattr(constants, one.name)) for one in CONSTANTS},
        num_rows=len(compared),
        mean_accuracy_pct=float(np.mean([one.accuracy_pct for one in compared])),
        accuracy_by_strategy_pct=_means(compared, lambda one: one.row.strategy),
        accuracy_by_model_pct=_means(compared, lambda one: one.row.model),
        rank_correlation=(
            float(np.mean([one.correlation for one in rankings])) if rankings else None
        ),
        num_pairs=sum(one.num_pairs for one in rankings),
        num_right=sum(one.num_right for one in rankings),
        mean_regret_pct=float(np.mean([one.regret_pct for one in rankings])) if rankings else None,
        max_regret_pct=max((one.regret_pct for one in rankings), default=None),
        rankings=[
            RankingResult(
                model=one.model,
                devices=one.devices,
                measured=list(one.measured),
                predicted=list(one.predicted),
                correlation=one.correlation,
                num_pairs=one.num_pairs,
                num_right=one.num_right,
                regret_pct=one.regret_pct,
            )
            for one in rankings
        ],
        projections=[
            ProjectionResult(
                model=one.model,
                strategy=one.strategy,
                mean_error_pct=one.mean_error_pct,
                max_error_pct=one.max_error_pct,
                num_rows=one.num_rows,
            )
            for one in projections
        ],
        held_out=[
            HeldOutResult(
                way=one.way.value,
                left_out=one.left_out,
                num_rows=len(one.rows),
                accuracy_pct=one.accuracy_pct,
                worst_error_pct=100 * float(np.expm1(max(one.log_errors, key=abs))),
                num_covered=num_covered(one, constants),
            )
            for one in held_out
        ],
        rows=[
            ValidatedRow(
                model=one.row.model,
                strategy=one.row.strategy,
                devices=one.row.devices,
                global_batch=one.row.global_batch,
                measured_step_s=one.measured_step_s,
                predicted_step_s=one.predicted_step_s,
                error_pct=one.error_pct,
                accuracy_pct=one.accuracy_pct,
                measured_compute_s=one.row.measured_compute_s,
                predicted_compute_s=one.predicted_compute_s,
                memory_error_pct=one.memory_error_pct,
            )
            for one in compared
        ],
    )


def _means(compared: Sequence[Compared], key: Callable[[Compared], str]) -> dict[str, float]:
    groups: dict[str, list[float]] = {}
    for one in compared:
        groups.setdefault(key(one), []).append(one.accuracy_pct)
    return {name: float(np.mean(found)) for name, found in groups.items()}
