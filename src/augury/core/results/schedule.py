"""What ``augury schedule`` found, as typed data: its JSON, and what the renderers show."""

from __future__ import annotations

import msgspec

from augury.core.ledger import Anomaly
from augury.core.results.schema_version import SCHEMA_VERSION

Curve = list[tuple[int, int]]
"""Nanoseconds from the start of backward, and bytes so far."""


class PieceResult(msgspec.Struct, frozen=True, kw_only=True):
    """One message. Times are from the start of backward: when backward had made all of it, when it
    held its link, when it had arrived, when forward would first need something of it."""

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
    """``step_ns`` is the replayed step where there is a recorded graph to replay, else the
    evaluated one; shares are of that step, and ``gap_pct`` is how far it is above the bound."""

    policy: str
    step_ns: int
    evaluated_step_ns: int
    replayed_step_ns: int | None
    interval_ns: tuple[int, int] | None
    gain_pct: float
    """Against ``baseline_step_ns``; positive is faster."""
    waiting_ns: int
    """How long the main thread waits for communication."""
    link_use_pct: float
    device_use_pct: float
    gap_pct: float
    num_pieces: int
    window_bytes: int | None
    has_barrier: bool
    is_stock_ddp: bool
    """A list of bucket sizes makes stock DDP do this."""
    transferred: Curve
    trouble: str | None = None
    """Why it could not be replayed: it is then not chosen, and its step is the evaluated one."""


class ScheduleResult(msgspec.Struct, frozen=True, kw_only=True):
    """``policies`` in the order in which they were asked for; ``pieces`` are those of ``best``.
    ``baseline`` says what gains are counted from."""

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
    """Communication to compute."""
    baseline: str
    baseline_step_ns: int
    measured_step_ns: int | None
    bound_ns: int
    """Lower bound on the replayed and the evaluated step of any order."""
    headroom_pct: float
    """What the bound is below the baseline, replayed or evaluated, whichever is faster."""
    noise_pct: float
    """A gain below this does not show among the run's own variations."""
    can_pay: bool
    best: str
    plan: str | None
    """The file that the best was written to; null also where no plan can pay."""
    policies: list[PolicyResult]
    pieces: list[PieceResult]
    released: Curve
    ledger: list[Anomaly]
    warnings: list[str] = []
    """Why the runtime will not follow a plan of pieces, as far as the recorded run tells."""
