"""Summary of recorded TCP traffic: processes, connections, links and collectives."""

from __future__ import annotations

import msgspec

from augury.core.ledger import Anomaly
from augury.core.results.schema_version import SCHEMA_VERSION
from augury.core.trace.trace import Clock


class ProcessResult(msgspec.Struct, frozen=True, kw_only=True):
    rank: int | None
    pid: int
    host: str
    num_calls: int
    calls_written_over: int
    calls_not_kept: int
    bytes_not_kept: int
    connections_lost: int
    clock: Clock


class ConnectionResult(msgspec.Struct, frozen=True, kw_only=True):
    """A TCP connection with the bytes of its whole lifetime; fields of an end that was not recorded
    are null."""

    rank_a: int | None
    rank_b: int | None
    address_a: str
    address_b: str
    sent_a: int
    received_b: int | None
    sent_b: int | None
    received_a: int
    rtt_ns: int | None
    is_late: bool


class LinkResult(msgspec.Struct, frozen=True, kw_only=True):
    """The job's traffic from one rank to another, without Augury's own. ``busy_ns`` is the time
    with messages in flight; ``refused_pct`` its part in which the kernel accepted less than the
    sender had. ``use_over_step_pct`` is the utilization in equal slices of a step; empty if no
    steps were recorded."""

    src: int
    dst: int
    num_messages: int
    size_bytes: int
    payload_bytes: int
    attributed_bytes: int
    rate_bytes_per_s: float | None
    shortest_delay_ns: int | None
    busy_ns: int
    refused_pct: float | None
    retransmits: int | None
    use_over_step_pct: list[float] = []


class CollectiveResult(msgspec.Struct, frozen=True, kw_only=True):
    """All collectives of one kind and algorithm. ``num_exact`` is the number of those that sent the
    expected bytes exactly."""

    kind: str
    algorithm: str
    num_ranks: int
    count: int
    size_bytes: int
    payload_bytes: int
    expected_bytes: int | None
    num_exact: int


class TimeOfCollectives(msgspec.Struct, frozen=True, kw_only=True):
    """Time of all members of all collectives: waiting for the last rank to arrive, messages in
    flight, and the rest, which is processing."""

    total_ns: int
    waiting_for_ranks_pct: float
    on_the_way_pct: float
    processors_pct: float


class WireResult(msgspec.Struct, frozen=True, kw_only=True):
    """``num_whole_connections`` were recorded at both ends and from their beginning; on
    ``num_equal_connections`` of them both ends counted the same bytes."""

    schema_version: int = SCHEMA_VERSION
    num_messages: int
    payload_bytes: int
    attributed_pct: float
    bytes_by_kind: dict[str, int]
    num_equal_connections: int
    num_whole_connections: int
    processes: list[ProcessResult]
    connections: list[ConnectionResult]
    links: list[LinkResult]
    collectives: list[CollectiveResult]
    time_of_collectives: TimeOfCollectives | None
    ledger: list[Anomaly]
