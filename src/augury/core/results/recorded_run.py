"""Summary of a recorded run: ranks with their steps and traces, TCP traffic, anomalies."""

from __future__ import annotations

import msgspec

from augury.core.ledger import Anomaly


class RankSummary(msgspec.Struct, frozen=True, kw_only=True):
    rank: int
    host: str
    num_steps: int
    traces: list[str]
    recorded_step_ns: int | None
    """Median of the steps in timed windows, without the first of each, which waits for other
    ranks."""
    plain_step_ns: int | None
    """Median of the steps outside windows."""


class WireSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of the recorded TCP traffic."""

    num_processes: int
    num_connections: int
    num_events: int
    """Number of calls and TCP states that were kept."""
    events_written_over: int
    """Number of events that later ones replaced, or that a killed process left incomplete."""
    calls_not_kept: int
    """Number of calls outside of windows; only their bytes are counted."""
    connections_lost: int


class WatchSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of the lines in ``watch.jsonl``."""

    file: str
    """Name of the file in the run's folder."""
    num_windows: int
    num_changes: int
    """Number of windows in which the verdict changed."""


class ModuleTimesSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of the modules that were timed after the job."""

    num_modules: int
    num_groups: int
    """Number of groups of equal modules, of which one is timed."""
    num_compiled: int
    """Number of groups that were also timed compiled."""
    troubles: list[str]
    """Reasons why modules, or variants of them, have no times: each reason once, with the first
    module."""


class RunPlace(msgspec.Struct, frozen=True, kw_only=True):
    """Host and folder of the gathered files."""

    host: str
    folder: str


class RunSummary(msgspec.Struct, frozen=True, kw_only=True):
    ranks: list[RankSummary]
    ledger: list[Anomaly]
    gathered: RunPlace | None = None
    """RunPlace of the whole run at rank 0, if this folder is only the part of another host."""
    wire: WireSummary | None = None
    """None if TCP traffic was not recorded."""
    watch: WatchSummary | None = None
    """None if the job was not watched, or the summary is of another rank than 0."""
    module_times: ModuleTimesSummary | None = None
    """None if no modules were to be timed, or none were stored."""

    @property
    def is_empty(self) -> bool:
        return not (self.ranks or self.gathered or (self.wire and self.wire.num_processes))
