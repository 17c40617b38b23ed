"""Breakdown of a run's steps: time by rank and layer, collectives by size, utilization of links."""

from __future__ import annotations

import msgspec


class RankBreakdown(msgspec.Struct, frozen=True, kw_only=True):
    """Replayed time of one rank, per step. The parts add up to ``step_ns``: compute, communication
    that no compute hides (transfer, waiting for other ranks), host work that neither hides, and the
    rest."""

    rank: int
    step_ns: int
    compute_ns: int
    exposed_transfer_ns: int
    exposed_waiting_ns: int
    host_ns: int
    """Work of host threads while the device and the network are idle."""
    idle_ns: int
    """No recorded operation runs."""
    communication_ns: int
    """All communication, hidden or not."""


class LayerBreakdown(msgspec.Struct, frozen=True, kw_only=True):
    """Replayed time of one layer, per step, as the mean over the ranks that have it."""

    layer: str
    num_ranks: int
    forward_ns: int
    backward_ns: int
    update_ns: int
    other_ns: int
    communication_ns: int
    size_bytes: int
    """Communicated bytes per step and rank."""
    critical_ns: int
    """Part of the critical path, per step."""


class CollectiveTimes(msgspec.Struct, frozen=True, kw_only=True):
    """Mean times of one collective on its ranks. ``waiting_ns``: until the last rank has arrived;
    ``transfer_ns``: from then on."""

    waiting_ns: int
    transfer_ns: int
    bus_bandwidth_bytes_per_s: float | None
    """Bytes that pass each rank's link per second of transfer; null without size or transfer."""


class CollectiveBreakdown(msgspec.Struct, frozen=True, kw_only=True):
    """All collectives of one kind, size and number of ranks."""

    kind: str
    size_bytes: int
    num_ranks: int
    per_step: float
    """Number of them in one step."""
    replayed: CollectiveTimes | None
    measured: CollectiveTimes | None


class LinkBreakdown(msgspec.Struct, frozen=True, kw_only=True):
    """Utilization of one link or communication stream over the replayed window."""

    name: str
    rank: int | None
    kind: str
    busy_pct: float
    waiting_pct: float
    over_window_pct: list[float]
    """Share of time with an operation on it, in equal slices of the window."""


class Breakdown(msgspec.Struct, frozen=True, kw_only=True):
    """``layers`` and ``collectives`` are those with most time, largest first; ``links`` those with
    the highest utilization. The numbers of all of them are ``num_...``."""

    ranks: list[RankBreakdown]
    layers: list[LayerBreakdown]
    num_layers: int
    collectives: list[CollectiveBreakdown]
    num_collectives: int
    links: list[LinkBreakdown]
    num_links: int


class WhatIfRow(msgspec.Struct, frozen=True, kw_only=True):
    """One predicted change of a run; ``trouble`` says why a change cannot be predicted."""

    change: str
    option: str
    """Options of ``augury whatif`` that predict it."""
    predicted_step_ns: int | None = None
    interval_ns: tuple[int, int] | None = None
    gain_pct: float | None = None
    trouble: str | None = None
