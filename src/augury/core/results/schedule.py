"""Results of ``augury schedule``; its JSON has the same fields."""

from __future__ import annotations

import msgspec

from augury.core.ledger import Anomaly
from augury.core.results.schema_version import SCHEMA_VERSION

Curve = list[tuple[int, int]]
"""Points of a curve: nanoseconds since the start of backward, and cumulative bytes."""


class PieceResult(msgspec.Struct, frozen=True, kw_only=True):
    """One message of an order. Times count from the start of backward."""

    op: str
    size_bytes: int
    num_slices: int
    first_gradient: str
    release_ns: int
    """Time at which backward has produced the last gradient of the message."""
    start_ns: int
    end_ns: int
    """Start and end on the link."""
    arrive_ns: int
    need_ns: int
    """Time at which forward first needs one of the gradients."""


class PolicyResult(msgspec.Struct, frozen=True, kw_only=True):
    """Step that one policy achieves. ``step_ns`` is the replayed step if there is a recorded run,
    otherwise the evaluated step. Percentages refer to ``step_ns``; ``gap_pct`` is its distance
    above the bound."""

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
    """Whether stock DDP can follow this order, given a list of bucket sizes."""
    transferred: Curve
    trouble: str | None = None
    """Reason why the order could not be replayed, or null. Its ``step_ns`` is then the evaluated
    step, and it is the best only if no order could be replayed."""


class ScheduleResult(msgspec.Struct, frozen=True, kw_only=True):
    """Comparison of policies. ``policies`` are in the order of the request; ``pieces`` belong to
    the policy ``best``. Gains are relative to the order that ``baseline`` names."""

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
    """Distance of the bound below the replayed or the evaluated step of the baseline, whichever is
    shorter."""
    noise_pct: float
    """Gains below this are within the run's own variation and cannot be measured."""
    can_pay: bool
    """Whether a plan is worthwhile: the headroom exceeds the noise, and the best order has no
    ``trouble`` and a positive gain. If our own search took part, that gain must also exceed the
    noise."""
    best: str
    plan: str | None
    """Path of the plan for the best order; null if no plan was written."""
    policies: list[PolicyResult]
    pieces: list[PieceResult]
    released: Curve
    ledger: list[Anomaly]
    warnings: list[str] = []
    """Reasons, seen in the recorded run, why the runtime will refuse a plan."""
