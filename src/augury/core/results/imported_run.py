"""Summary of traces that were imported as a run."""

from __future__ import annotations

import msgspec

from augury.core.ledger import Anomaly
from augury.core.trace.trace import Clock


class RankClock(msgspec.Struct, frozen=True, kw_only=True):
    rank: int
    clock: Clock


class ImportResult(msgspec.Struct, frozen=True, kw_only=True):
    num_ranks: int
    """Number of ranks with a trace."""
    world_size: int
    num_events: int
    num_steps: int
    num_matched: int
    """Number of collectives that were matched across ranks."""
    num_unmatched: int
    """Number of events of collectives without a counterpart on other ranks."""
    clocks: list[RankClock]
    ledger: list[Anomaly]
