"""Fit of the constants to measurements, bounded and regularised towards neutral.

Residuals are logarithms of ratios, so that a step of 1 s counts as much as one of 10 ms. Beyond a
few per cent the loss is linear: networks have outliers that no constant explains.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy.optimize import least_squares

from augury.core.cluster.cluster import Cluster
from augury.core.columns import F8
from augury.core.errors import InputError
from augury.core.progress import Progress, silent
from augury.executor import IN_THIS_PROCESS, Executor
from augury.oracle.fitting.corrections import BARE, CONSTANTS, Constant, Constants
from augury.oracle.fitting.held_out import HeldOut, held_out_splits, spreads_of
from augury.oracle.fitting.measured_table import SERIAL, Row
from augury.oracle.layer_costs import LayerWork
from augury.oracle.strategies.registry import find_strategy
from augury.oracle.strategy import Estimate, Options, Strategy, StrategyCase

PULL = 0.02
"""Weight of the regularisation: departing by a unit costs as much as an error of 2 %."""
OUTLIER = 0.03
DECIMALS = 4
"""Decimals of fitted coordinates. Digits after them differ between processors, since libraries of
linear algebra round differently."""
UNKNOWN_SPREAD = 0.1
"""Spread where too few rows were measured to hold any out."""

_FITTED = tuple(constant for constant in CONSTANTS if constant.name != "memory_reuse")


@dataclass(frozen=True, kw_only=True, eq=False)
class Predicted:
    """Predictions with one entry per row."""

    step_s: F8
    compute_s: F8
    memory_bytes: F8
    activation_bytes: F8


@dataclass(frozen=True, kw_only=True, eq=False)
class Predictor:
    """Predictor of measured rows, grouped so that each group is one evaluation."""

    rows: Sequence[Row]
    works: Mapping[str, LayerWork]
    cluster: Cluster
    options: Options

    def predict(self, constants: Constants) -> Predicted:
        columns = np.zeros((4, len(self.rows)))
        for strategy, case, where in self._groups:
            columns[:, where] = _columns(strategy.evaluate(replace(case, constants=constants)))
        step_s, compute_s, memory_bytes, activation_bytes = columns
        return Predicted(
            step_s=step_s,
            compute_s=compute_s,
            memory_bytes=memory_bytes,
            activation_bytes=activation_bytes,
        )

    @cached_property
    def _groups(self) -> list[tuple[Strategy, StrategyCase, list[int]]]:
        groups: dict[tuple[str, str], list[int]] = {}
        for i, row in enumerate(self.rows):
            name = "data" if row.strategy == SERIAL else row.strategy
            groups.setdefault((row.model, name), []).append(i)
        return [
            (
                find_strategy(name),
                StrategyCase(
                    work=self.works[model],
                    cluster=self.cluster,
                    constants=BARE,
                    options=self.options,
                    devices=np.array([self.rows[i].devices for i in where], float),
                    batch=np.array([self.rows[i].global_batch for i in where], float),
                ),
                where,
            )
            for (model, name), where in groups.items()
        ]


def fit(
    rows: Sequence[Row],
    works: Mapping[str, LayerWork],
    cluster: Cluster,
    options: Options | None = None,
) -> Constants:
    """Fits to all of ``rows``; spreads come from fits of some rows compared with the others."""
    return fit_and_hold_out(rows, works, cluster, options)[0]


def fit_and_hold_out(
    rows: Sequence[Row],
    works: Mapping[str, LayerWork],
    cluster: Cluster,
    options: Options | None = None,
    executor: Executor = IN_THIS_PROCESS,
    *,
    progress: Progress = silent,
) -> tuple[Constants, list[HeldOut]]:
    """Also returns the errors of fits to some rows at the others."""
    measured = [row for row in rows if row.measured_step_s is not None]
    if not measured:
        raise InputError("no row has a measured step to fit to", remedy="give measured_step_s")
    options = options or Options()

    def predictor(chosen: Sequence[Row]) -> Predictor:
        return Predictor(rows=chosen, works=works, cluster=cluster, options=options)

    with progress("fitting constants"):
        whole = _fit(predictor(measured))
    splits = held_out_splits(measured)
    log_errors = executor.run(
        _held_out_errors,
        [
            _HeldOutFit(one.left_out, predictor(one.kept), predictor(one.tested), whole)
            for one in splits
        ],
        work="fitting constants to some of the rows",
        progress=progress,
    )
    held_out = [one.held_out(found) for one, found in zip(splits, log_errors, strict=True)]
    spreads = spreads_of(held_out)
    models = sorted({row.model for row in measured})
    found = replace(
        whole,
        memory_reuse=_memory_reuse(predictor(measured), whole),
        spread=spreads.known or {row.strategy: UNKNOWN_SPREAD for row in measured},
        unseen_spread=spreads.unseen,
        beyond_spread=spreads.beyond,
        max_devices={
            name: float(max(row.devices for row in measured if row.strategy == name))
            for name in sorted({row.strategy for row in measured})
        },
        layer_shares=_largest([works[model].shares_by_kind for model in models]),
        cluster=cluster.name,
        device=cluster.described_device.name,
        fitted_on=f"{len(measured)} measurements of {', '.join(models)} on {cluster.name}",
    )
    return found, held_out


@dataclass(frozen=True, eq=False)
class _HeldOutFit:
    """A fit to some rows and its errors at others, for a worker."""

    left_out: str
    kept: Predictor
    tested: Predictor
    start: Constants

    def __str__(self) -> str:
        return f"the fit without {self.left_out}"


def _held_out_errors(asked: _HeldOutFit) -> F8:
    return _log_errors(asked.tested, _fit(asked.kept, start=asked.start))


def _largest(shares: Sequence[Mapping[str, float]]) -> dict[str, float]:
    kinds = sorted({kind for one in shares for kind in one})
    return {kind: max(one.get(kind, 0.0) for one in shares) for kind in kinds}


def _fit(predictor: Predictor, start: Constants | None = None) -> Constants:
    """Fits constants; ``start`` is a fit of more rows, which is near."""
    compute_s = _of(predictor.rows, "measured_compute_s")
    step_s = _of(predictor.rows, "measured_step_s")
    has_compute = np.isfinite(compute_s)

    def errors(x: F8, fitted: Sequence[Constant]) -> F8:
        found = predictor.predict(_constants(x, fitted))
        return np.concatenate(
            [
                np.log(found.step_s / step_s),
                np.log(found.compute_s[has_compute] / compute_s[has_compute]),
            ]
        )

    # Constants that do not affect the rows stay exactly neutral.
    neutral = errors(np.zeros(0), ())
    affecting = [
        one for one in _FITTED if not np.array_equal(errors(np.full(1, 0.1), (one,)), neutral)
    ]
    if not affecting:
        return BARE
    low, high = (np.array([_bound(one, edge) for one in affecting]) for edge in (0, 1))
    found = least_squares(
        lambda x: np.concatenate([errors(x, affecting), PULL * x]),
        np.clip(
            [0.01 if start is None else _coordinate_of(one, start) for one in affecting], low, high
        ),
        bounds=(low, high),
        loss="soft_l1",
        f_scale=OUTLIER,
        max_nfev=400 if start is None else 40,
    )
    return _constants(np.round(found.x, DECIMALS), affecting)


def _log_errors(predictor: Predictor, constants: Constants) -> F8:
    measured = _of(predictor.rows, "measured_step_s")
    return np.log(predictor.predict(constants).step_s / measured)


def _memory_reuse(predictor: Predictor, constants: Constants) -> float:
    """Ratio of measured activation memory to the counted one."""
    measured = _of(predictor.rows, "measured_memory_bytes")
    known = np.isfinite(measured)
    if not known.any():
        return 1.0
    reuse = 1.0
    for _ in range(10):
        # The position of the peak depends on it as well.
        found = predictor.predict(replace(constants, memory_reuse=reuse))
        rest = found.memory_bytes - found.activation_bytes
        ratio = float(np.median((measured - rest)[known] / found.activation_bytes[known]))
        reuse = min(2.0, max(0.05, reuse * ratio))
    return reuse


def _constants(x: F8, fitted: Sequence[Constant]) -> Constants:
    values: dict[str, Any] = {}
    for constant, coordinate in zip(fitted, x.tolist(), strict=True):
        moved = coordinate * constant.unit
        value = constant.neutral * float(np.exp(moved)) if constant.is_ratio else moved
        values[constant.name] = min(constant.high, max(constant.low, value))
    return replace(BARE, **values)


def _bound(constant: Constant, edge: int) -> float:
    return _coordinate(constant, constant.high if edge else constant.low)


def _coordinate_of(constant: Constant, constants: Constants) -> float:
    return _coordinate(constant, getattr(constants, constant.name))


def _coordinate(constant: Constant, value: float) -> float:
    return (float(np.log(value)) if constant.is_ratio else value) / constant.unit


def _columns(estimate: Estimate) -> list[F8]:
    return [
        estimate.step_s,
        estimate.compute_s,
        estimate.total_memory_bytes,
        estimate.memory_bytes["activations"],
    ]


def _of(rows: Sequence[Row], name: str) -> F8:
    values = [getattr(row, name) for row in rows]
    return np.array([np.nan if value is None else value for value in values], float)
