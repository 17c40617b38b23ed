"""What a replay says, as typed data: the JSON of ``augury replay --json``, and what the other
renderers show."""

from __future__ import annotations

import msgspec

from augury.core.ledger import Anomaly
from augury.core.results.schema_version import SCHEMA_VERSION


class HolderResult(msgspec.Struct, frozen=True, kw_only=True):
    kind: str
    layer: str
    size_bytes: int


class RankResult(msgspec.Struct, frozen=True, kw_only=True):
    """``predicted_step_ns`` is null for a rank without steps, such as a server. Of what holds the
    peak memory the largest are listed; the others hold ``peak_memory_other_bytes``."""

    rank: int
    role: str
    host: str
    measured_step_ns: int | None
    predicted_step_ns: int | None
    error_pct: float | None
    peak_memory_bytes: int | None
    peak_memory_at_ns: int | None
    peak_memory_by_kind: dict[str, int]
    peak_memory_holders: list[HolderResult]
    peak_memory_other_bytes: int


class ResourceResult(msgspec.Struct, frozen=True, kw_only=True):
    """Shares of the replayed window; ``rank`` is null for what belongs to no rank."""

    name: str
    rank: int | None
    kind: str
    num_ops: int
    busy_pct: float
    waiting_pct: float
    idle_pct: float


class PathSegment(msgspec.Struct, frozen=True, kw_only=True):
    op: int
    rank: int
    step: int | None
    name: str
    kind: str
    layer: str
    resource: str
    start_ns: int
    dur_ns: int
    reason: str


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """What part of the critical path something has; ``name`` is a kind, a reason or a rank."""

    name: str
    dur_ns: int
    share_pct: float
    num_segments: int


class PathSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Largest share first."""

    dur_ns: int
    by_kind: list[Share]
    by_reason: list[Share]
    by_rank: list[Share]


class ReplayResult(msgspec.Struct, frozen=True, kw_only=True):
    """``num_simulated_ops`` is less than ``num_ops`` where ranks were folded, and more where the
    window was repeated to find its steady period. ``interval_ns`` is ``[low, high]`` around the
    prediction; ``unexplained_pct`` is the share of the measured steps, over all ranks, that no
    recorded operation accounts for. What nothing was measured of is null."""

    schema_version: int = SCHEMA_VERSION
    num_ranks: int
    num_servers: int
    num_ops: int
    num_steps: int
    num_simulated_ops: int
    measured_step_ns: int | None
    predicted_step_ns: int
    interval_ns: tuple[int, int] | None
    error_pct: float | None
    unexplained_pct: float | None
    makespan_ns: int
    ranks: list[RankResult]
    resources: list[ResourceResult]
    critical_path: list[PathSegment]
    critical_path_summary: PathSummary
    ledger: list[Anomaly]


class WhatIfResult(ReplayResult, frozen=True, kw_only=True):
    """The replay with the changes made. ``baseline_step_ns`` is the replay without them; what is
    gained is counted from there, and nothing was measured of the change."""

    changes: list[str]
    baseline_step_ns: int
    gain_pct: float
