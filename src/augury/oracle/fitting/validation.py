"""Validation of the oracle against a table of measurements, in one call."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from augury.core.cluster.cluster import Cluster
from augury.core.cluster.device import Precision
from augury.core.errors import InputError, UsageError
from augury.core.progress import Progress, silent
from augury.core.results.oracle import (
    HeldOutResult,
    ProjectionResult,
    RankingResult,
    ValidatedRow,
    ValidationResult,
)
from augury.executor import EngineName, Executor
from augury.oracle.fitting.comparison import (
    Compared,
    Projection,
    Ranking,
    compare,
    project,
    rank,
    works_for,
)
from augury.oracle.fitting.corrections import CONSTANTS, Constants
from augury.oracle.fitting.fit_corrections import fit_and_hold_out
from augury.oracle.fitting.held_out import HeldOut, num_covered
from augury.oracle.fitting.measured_table import Row, every_other, read_table
from augury.oracle.fitting.published import find_constants
from augury.oracle.measured_cluster import measured_cluster
from augury.oracle.model_reader.read_model import load_model
from augury.oracle.strategy import Options


@dataclass(frozen=True, kw_only=True)
class Validation:
    result: ValidationResult
    constants: Constants
    """Constants that were compared: fitted, or those asked for."""


def validate_oracle(
    measured: Path,
    *,
    fit: Path | None = None,
    fit_half: Literal["first", "second"] | None = None,
    model: str | None = None,
    fit_model: str | None = None,
    cluster: str | os.PathLike[str] | Cluster = "abci",
    collectives: Path | None = None,
    precision: str = "fp32",
    group: int | None = None,
    overlap: float = 0.0,
    constants: str = "bare",
    engine: EngineName = "processes",
    address: str | None = None,
    jobs: int | None = None,
    progress: Progress = silent,
) -> Validation:
    """Compares predictions with the measured rows of a CSV file.

    With ``fit``, constants are fitted to the rows of that file first. ``fit_half`` fits on every
    other scale only and compares with the rest. ``model`` and ``fit_model`` select rows.
    ``engine``, ``address`` and ``jobs`` state where fits run, as in ``augury.executor``.
    """
    executor = Executor(engine=engine, address=address, jobs=jobs)
    if fit_half is not None and fit is None:
        raise UsageError("--every-other selects the rows to fit on", remedy="give --fit as well")
    described = measured_cluster(cluster, collectives)
    compared = _rows_of_model(read_table(measured), model, measured)
    fitted_on: list[Row] = []
    if fit is not None:
        fitted_on = _rows_of_model(read_table(fit), fit_model, fit)
        if fit_half is not None:
            fitted_on = every_other(fitted_on, int(fit_half == "second"))
            compared = [row for row in compared if row not in fitted_on]
    with progress("reading models"):
        works = works_for([*compared, *fitted_on], load_model, described, Precision(precision))
    options = Options(group=group, overlap=overlap, is_bare=constants == "bare" and fit is None)
    held_out: list[HeldOut] = []
    if fit is not None:
        known, held_out = fit_and_hold_out(
            fitted_on, works, described, options, executor, progress=progress
        )
    else:
        known = find_constants(constants)
    found = compare(compared, works, described, known, options)
    if not found:
        raise InputError(
            "no measured row is left to compare with", remedy="give rows that are not fitted on"
        )
    result = _result(
        found,
        rank(found),
        project(compared, works, described),
        cluster=described,
        constants=known,
        fitted_on=fitted_on,
        held_out=held_out,
    )
    return Validation(result=result, constants=known)


def _rows_of_model(rows: list[Row], model: str | None, path: Path) -> list[Row]:
    found = [row for row in rows if model is None or row.model.lower() == model.lower()]
    if not found:
        known = ", ".join(sorted({row.model[:40] for row in rows}))
        raise InputError(f"{path} has no rows of {model}", remedy=f"it has {known}")
    return found


def _result(
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
