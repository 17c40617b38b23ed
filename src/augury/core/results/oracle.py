"""Results of ``oracle`` and ``validate``: predictions, recommendations and their validation.

Times are float seconds, as in the oracle's closed forms.
"""

from __future__ import annotations

import msgspec

from augury.core.results.schema_version import SCHEMA_VERSION


class PartResult(msgspec.Struct, frozen=True, kw_only=True):
    """One communication of a step."""

    reason: str
    collective: str
    size_bytes: int
    group: int
    level: str
    time_s: float
    exposed_s: float


class OracleRow(msgspec.Struct, frozen=True, kw_only=True):
    strategy: str
    devices: int
    axes: dict[str, int]
    global_batch: int
    step_s: float
    compute_s: float
    comm_s: float
    exposed_comm_s: float
    memory_bytes: int
    feasible: bool
    limit: str
    """Number of devices that this strategy can use, and the reason."""
    bottleneck: str
    interval_s: tuple[float, float]
    """90 % interval of ``step_s``."""
    why: str | None
    """Reason why it is infeasible; None if it is feasible."""
    epoch_s: float | None
    cost_per_epoch: float | None
    efficiency_pct: float
    """Share of the speed of as many devices with evenly divided compute and no communication."""
    memory_by_kind: dict[str, int]
    parts: list[PartResult]
    fidelity: str
    """Origin of ``step_s``: ``closed`` (form) or ``replay``."""


class Recommendation(msgspec.Struct, frozen=True, kw_only=True):
    devices: int
    strategy: str
    step_s: float
    samples_per_s: float
    alike: list[str]
    """Other strategies within 1 % of it."""
    runner_up: str | None
    """Fastest strategy that is not within 1 %."""
    margin_pct: float | None
    confidence_pct: float | None


class OracleResult(msgspec.Struct, frozen=True, kw_only=True):
    """Predictions of one sweep; ``fastest`` has one entry per number of devices with a feasible
    strategy."""

    schema_version: int = SCHEMA_VERSION
    model: str
    num_parameters: int
    num_layers: int
    sample_s: float
    cluster: str
    device: str
    precision: str
    constants: str
    samples: int | None
    memory_limit_bytes: int
    rows: list[OracleRow]
    fastest: list[Recommendation]
    recommended: Recommendation | None
    warnings: list[str]
    """Ways in which the sweep goes beyond the measurements that the constants were fitted on."""
    notes: list[str]


class ValidatedRow(msgspec.Struct, frozen=True, kw_only=True):
    model: str
    strategy: str
    devices: int
    global_batch: int
    measured_step_s: float
    predicted_step_s: float
    error_pct: float
    accuracy_pct: float
    measured_compute_s: float | None
    predicted_compute_s: float
    memory_error_pct: float | None


class RankingResult(msgspec.Struct, frozen=True, kw_only=True):
    """Order of strategies by time per sample, fastest first. Pairs count if their measurements
    differ by more than their error."""

    model: str
    devices: int
    measured: list[str]
    predicted: list[str]
    correlation: float
    num_pairs: int
    num_right: int
    regret_pct: float


class ProjectionResult(msgspec.Struct, frozen=True, kw_only=True):
    """Error of the bare equations against the projection that the table itself contains."""

    model: str
    strategy: str
    mean_error_pct: float
    max_error_pct: float
    num_rows: int


class HeldOutResult(msgspec.Struct, frozen=True, kw_only=True):
    """Rows that were held out of a fit, compared with its predictions."""

    way: str
    left_out: str
    num_rows: int
    accuracy_pct: float
    worst_error_pct: float
    num_covered: int
    """Number of rows within the stated intervals, which are calibrated on these same rows."""


class ValidationResult(msgspec.Struct, frozen=True, kw_only=True):
    schema_version: int = SCHEMA_VERSION
    cluster: str
    fitted_on: str
    """Measurements that the constants were fitted on; empty for the bare equations."""
    is_held_out: bool
    """Whether none of the compared rows was fitted on."""
    constants: dict[str, float]
    num_rows: int
    mean_accuracy_pct: float
    accuracy_by_strategy_pct: dict[str, float]
    accuracy_by_model_pct: dict[str, float]
    rank_correlation: float | None
    """Mean over the scales at which several strategies were measured."""
    num_pairs: int
    num_right: int
    mean_regret_pct: float | None
    max_regret_pct: float | None
    rankings: list[RankingResult]
    projections: list[ProjectionResult]
    held_out: list[HeldOutResult]
    """Results for held-out rows of the fit; empty without a fit."""
    rows: list[ValidatedRow]
