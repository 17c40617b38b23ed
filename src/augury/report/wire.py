"""What went over the wire, as typed data: the JSON of ``augury wire --json``."""

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
    """Bytes over its whole life; what an end that was not recorded would tell is null."""

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
    """What the job sent from one rank to another, without what Augury did. ``busy_ns``: while any
    message was on its way; ``refused_pct``: the part of it in which the sender had more than the
    kernel took. ``use_over_step_pct``: in equal slices of a step, how much of the time anything was
    on its way; empty where no steps were recorded."""

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
    """All of one kind and algorithm. ``num_exact``: how many of them sent what they should have,
    to the byte."""

    kind: str
    algorithm: str
    num_ranks: int
    count: int
    size_bytes: int
    payload_bytes: int
    expected_bytes: int | None
    num_exact: int


class TimeOfCollectives(msgspec.Struct, frozen=True, kw_only=True):
    """Over all collectives and members: waiting for the last rank to come, something on its way,
    and the rest, which processors have."""

    total_ns: int
    waiting_for_ranks_pct: float
    on_the_way_pct: float
    processors_pct: float


class WireResult(msgspec.Struct, frozen=True, kw_only=True):
    """``num_equal_connections``: whose ends count the same bytes, of the
    ``num_whole_connections`` that were recorded at both ends and from their beginning."""

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
