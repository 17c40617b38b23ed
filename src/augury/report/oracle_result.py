"""What the oracle says, as typed data: the JSON of ``oracle`` and ``validate``, and what the
renderers show. Times are float seconds, as in the oracle's closed forms."""

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
    """How many devices this strategy can use, and what that comes from."""
    bottleneck: str
    interval_s: tuple[float, float]
    """Nine times in ten."""
    why: str | None
    """Why it is not feasible."""
    epoch_s: float | None
    cost_per_epoch: float | None
    efficiency_pct: float
    """Of as many devices that only compute, and share that out evenly."""
    memory_by_kind: dict[str, int]
    parts: list[PartResult]
    fidelity: str
    """Where the step comes from: ``closed`` (form) or ``replay``."""


class Recommendation(msgspec.Struct, frozen=True, kw_only=True):
    devices: int
    strategy: str
    step_s: float
    samples_per_s: float
    alike: list[str]
    """Others within one per cent of it."""
    runner_up: str | None
    """The fastest that is not."""
    margin_pct: float | None
    confidence_pct: float | None


class OracleResult(msgspec.Struct, frozen=True, kw_only=True):
    """``fastest`` has one entry for every number of devices that some strategy can use."""

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
    """Where the sweep goes beyond what the constants were fitted on."""
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
    """By time per sample, fastest first; pairs are those that measurements tell apart."""

    model: str
    devices: int
    measured: list[str]
    predicted: list[str]
    correlation: float
    num_pairs: int
    num_right: int
    regret_pct: float


class ProjectionResult(msgspec.Struct, frozen=True, kw_only=True):
    """The bare equations beside what the table's own authors projected."""

    model: str
    strategy: str
    mean_error_pct: float
    max_error_pct: float
    num_rows: int


class HeldOutResult(msgspec.Struct, frozen=True, kw_only=True):
    """Rows that were left out of a fit, compared with what it predicts of them."""

    way: str
    left_out: str
    num_rows: int
    accuracy_pct: float
    worst_error_pct: float
    num_covered: int
    """Rows within the stated intervals, whose widths are calibrated on these very rows."""


class ValidationResult(msgspec.Struct, frozen=True, kw_only=True):
    schema_version: int = SCHEMA_VERSION
    cluster: str
    fitted_on: str
    """Empty: the bare equations."""
    is_held_out: bool
    """Nothing that is compared was fitted on."""
    constants: dict[str, float]
    num_rows: int
    mean_accuracy_pct: float
    accuracy_by_strategy_pct: dict[str, float]
    accuracy_by_model_pct: dict[str, float]
    rank_correlation: float | None
    """The mean over scales at which several strategies were measured."""
    num_pairs: int
    num_right: int
    mean_regret_pct: float | None
    max_regret_pct: float | None
    rankings: list[RankingResult]
    projections: list[ProjectionResult]
    held_out: list[HeldOutResult]
    """Of what was fitted on; empty where nothing was."""
    rows: list[ValidatedRow]
