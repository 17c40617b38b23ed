"""Predictions compared with measurements: accuracy, order of strategies, and regret."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import rankdata

from augury.core.cluster.cluster import Cluster
from augury.core.cluster.device import Precision
from augury.core.columns import F8
from augury.core.errors import InputError
from augury.core.model import Model
from augury.oracle.fitting.corrections import BARE, Constants
from augury.oracle.fitting.fit_corrections import Predictor
from augury.oracle.fitting.measured_table import SERIAL, Row
from augury.oracle.layer_costs import LayerWork
from augury.oracle.strategy import Options

TIE = 0.04
"""Relative difference below which measurements have no order: each is read off a plot to 2 %."""


@dataclass(frozen=True, kw_only=True)
class Compared:
    row: Row
    predicted_step_s: float
    predicted_compute_s: float
    predicted_memory_bytes: float

    @property
    def measured_step_s(self) -> float:
        assert self.row.measured_step_s is not None
        return self.row.measured_step_s

    @property
    def error_pct(self) -> float:
        return 100 * (self.predicted_step_s / self.measured_step_s - 1)

    @property
    def accuracy_pct(self) -> float:
        """Accuracy; negative where the prediction is more than twice the measurement."""
        return 100 - abs(self.error_pct)

    @property
    def memory_error_pct(self) -> float | None:
        measured = self.row.measured_memory_bytes
        return 100 * (self.predicted_memory_bytes / measured - 1) if measured else None


@dataclass(frozen=True, kw_only=True)
class Ranking:
    """Strategies of one model on one number of devices, by time per sample."""

    model: str
    devices: int
    measured: tuple[str, ...]
    predicted: tuple[str, ...]
    correlation: float
    """Spearman's rank correlation."""
    num_pairs: int
    """Number of pairs with a measurable difference."""
    num_right: int
    regret_pct: float
    """Extra time of the predicted fastest strategy over the measured fastest."""


@dataclass(frozen=True, kw_only=True)
class Projection:
    """Error against the projection of another oracle in the same table."""

    model: str
    strategy: str
    mean_error_pct: float
    max_error_pct: float
    num_rows: int


def works_for(
    rows: Sequence[Row], load: Callable[[str], Model], cluster: Cluster, precision: Precision
) -> dict[str, LayerWork]:
    """Returns the costs of all models, by their names in the table. A measured serial row sets the
    time of a sample on one device."""
    works: dict[str, LayerWork] = {}
    for row in rows:
        if row.model not in works:
            name = row.model.lower().replace("-", "").replace("_", "")
            is_named = "/" not in row.model and ":" not in row.model
            works[row.model] = LayerWork.of(
                load(name if is_named and not row.model.endswith(".json") else row.model),
                cluster.described_device,
                precision,
            )
    for row in rows:
        if row.strategy == SERIAL and row.measured_step_s is not None:
            if row.devices != 1:
                raise InputError(
                    f"a serial step of {row.model} on {row.devices} devices",
                    remedy="serial is one device",
                )
            work = works[row.model]
            sample_s = (row.measured_step_s - work.total_update_s) / row.global_batch
            if sample_s > 0:
                works[row.model] = work.anchored(sample_s)
    return works


def compare(
    rows: Sequence[Row],
    works: dict[str, LayerWork],
    cluster: Cluster,
    constants: Constants,
    options: Options | None = None,
) -> list[Compared]:
    measured = [row for row in rows if row.measured_step_s is not None]
    found = Predictor(
        rows=measured, works=works, cluster=cluster, options=options or Options()
    ).predict(constants)
    columns = (found.step_s.tolist(), found.compute_s.tolist(), found.memory_bytes.tolist())
    return [
        Compared(
            row=row,
            predicted_step_s=step_s,
            predicted_compute_s=compute_s,
            predicted_memory_bytes=memory_bytes,
        )
        for row, step_s, compute_s, memory_bytes in zip(measured, *columns, strict=True)
    ]


def rank(compared: Iterable[Compared]) -> list[Ranking]:
    scales: dict[tuple[str, int], list[Compared]] = {}
    for one in compared:
        if one.row.strategy != SERIAL:
            scales.setdefault((one.row.model, one.row.devices), []).append(one)
    return [
        _ranking(model, devices, found)
        for (model, devices), found in sorted(scales.items())
        if len({one.row.strategy for one in found}) > 1
    ]


def project(rows: Sequence[Row], works: dict[str, LayerWork], cluster: Cluster) -> list[Projection]:
    """Compares the bare equations with the projection in the table."""
    projected = [row for row in rows if row.projected_step_s is not None]
    found = Predictor(
        rows=projected, works=works, cluster=cluster, options=Options(is_bare=True)
    ).predict(BARE)
    errors: dict[tuple[str, str], list[float]] = {}
    for row, step_s in zip(projected, found.step_s.tolist(), strict=True):
        assert row.projected_step_s is not None
        off = 100 * (step_s / row.projected_step_s - 1)
        errors.setdefault((row.model, row.strategy), []).append(off)
    return [
        Projection(
            model=model,
            strategy=strategy,
            mean_error_pct=float(np.mean(off)),
            max_error_pct=max(off, key=abs),
            num_rows=len(off),
        )
        for (model, strategy), off in errors.items()
    ]


def _ranking(model: str, devices: int, found: list[Compared]) -> Ranking:
    measured = np.array([one.measured_step_s / one.row.global_batch for one in found])
    predicted = np.array([one.predicted_step_s / one.row.global_batch for one in found])
    pairs = [
        (i, j)
        for i, j in itertools.combinations(range(len(found)), 2)
        if abs(measured[i] - measured[j]) > TIE * min(measured[i], measured[j])
    ]
    right = [(measured[i] < measured[j]) == (predicted[i] < predicted[j]) for i, j in pairs]
    return Ranking(
        model=model,
        devices=devices,
        measured=tuple(found[i].row.strategy for i in np.argsort(measured, kind="stable")),
        predicted=tuple(found[i].row.strategy for i in np.argsort(predicted, kind="stable")),
        correlation=_spearman(measured, predicted),
        num_pairs=len(pairs),
        num_right=sum(map(bool, right)),
        regret_pct=100 * float(measured[int(np.argmin(predicted))] / measured.min() - 1),
    )


def _spearman(a: F8, b: F8) -> float:
    ranks = [rankdata(values) for values in (a, b)]
    if any(np.ptp(rank) == 0 for rank in ranks):
        return 0.0
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])
