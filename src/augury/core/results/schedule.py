"""Results of ``augury schedule``; its JSON has the same fields."""

from __future__ import annotations

import msgspec

from augury.core.ledger import Anomaly
from augury.core.results.schema_version import SCHEMA_VERSION

Curve = list[tuple[int, int]]
"""Points of nanoseconds from the start of backward and cumulative bytes."""


class PieceResult(msgspec.Struct, frozen=True, kw_only=True):
    """One message. Times count from the start of backward: release of its last gradient, start and
    end on the link, arrival, and the first need of one of its gradients in forward."""

    op: str
    size_bytes: int
    num_slices: int
    first_gradient: str
    release_ns: int
    start_ns: int
    end_ns: int
    arrive_ns: int
    need_ns: int


class PolicyResult(msgspec.Struct, frozen=True, kw_only=True):
    """``step_ns`` is the replayed step where a graph was recorded, else the evaluated one. Shares
    refer to that step; ``gap_pct`` is its distance above the bound."""

    policy: str
    step_ns: int
    evaluated_step_ns: int
    replayed_step_ns: int | None
    interval_ns: tuple[int, int] | None
    gain_pct: float
    """Gain over ``baseline_step_ns``; positive is faster."""
    waiting_ns: int
    """Exposed communication: time for which the main thread waits for communication."""
    link_use_pct: float
    device_use_pct: float
    gap_pct: float
    num_pieces: int
    window_bytes: int | None
    has_barrier: bool
    is_stock_ddp: bool
    """Whether stock DDP follows this order with a list of bucket sizes."""
    transferred: Curve
    trouble: str | None = None
    """Reason why the order could not be replayed; it is then not chosen, and its step is the
    evaluated one."""


class ScheduleResult(msgspec.Struct, frozen=True, kw_only=True):
    """``policies`` are in the order of the request; ``pieces`` are those of ``best``. ``baseline``
    names the order that gains are counted from."""

    schema_version: int = SCHEMA_VERSION
    num_ranks: int
    scheme: str
    num_gradients: int
    size_bytes: int
    compute_ns: int
    backward_ns: int
    forward_ns: int
    overhead_ns: int
    ns_per_byte: float
    ratio: float
    """Ratio of communication to compute time."""
    baseline: str
    baseline_step_ns: int
    measured_step_ns: int | None
    bound_ns: int
    """Lower bound on the replayed and the evaluated step of any order."""
    headroom_pct: float
    """Distance of the bound below the baseline, replayed or evaluated, whichever is faster."""
    noise_pct: float
    """Gains below this are within the run's own variation and cannot be measured."""
    can_pay: bool
    best: str
    plan: str | None
    """File of the best order as a plan; null where none was written."""
    policies: list[PolicyResult]
    pieces: list[PieceResult]
    released: Curve
    ledger: list[Anomaly]
    warnings: list[str] = []
    """Reasons why the runtime will refuse a plan, as far as the recorded run shows them."""
