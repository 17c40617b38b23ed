"""Summarizes recorded TCP traffic: processes, connections, links and collectives."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from augury.core.enums import OpKind
from augury.core.errors import InputError
from augury.core.graph.graph import NONE
from augury.core.progress import Progress, silent
from augury.core.results.wire import (
    CollectiveResult,
    ConnectionResult,
    LinkResult,
    ProcessResult,
    WireResult,
)
from augury.core.trace.trace import Trace
from augury.core.trace.trace_file import RUN_FILE
from augury.core.wire import Algorithm, MessageKind, Messages, Wire, attributed_share
from augury.costs.links import median_rate_bytes_per_s
from augury.ingest.open_run import open_run
from augury.ingest.wire.read_wire import read_wire
from augury.predict.link_utilization import (
    RankPair,
    time_of_collectives,
    utilization_over_step,
)


def summarize_recorded_wire(run: Path, *, progress: Progress = silent) -> WireResult:
    """Reads and summarizes the TCP traffic of a run recorded with ``--wire``."""
    if not run.is_dir():
        raise InputError(
            f"{run} is not a run's folder", remedy="give a folder that `augury run --wire` wrote"
        )
    trace = None
    if has_trace(run):
        with progress(f"reading {run}"):
            trace = open_run(run)
    with progress("reading TCP traffic"):
        return summarize_wire(read_wire(run, trace), trace)


def has_trace(run: Path) -> bool:
    """Whether a framework's recorder wrote to the folder; else it has only TCP traffic."""
    return (run / RUN_FILE).exists() or any(run.glob("rank-*.json"))


def summarize_wire(wire: Wire, trace: Trace | None = None) -> WireResult:
    """``trace`` provides steps, and the times when ranks arrived at collectives."""
    messages = wire.messages
    connections = _connections(wire)
    whole = [c for c in connections if c.received_b is not None and not c.is_late]
    equal = [c for c in whole if (c.sent_a, c.sent_b) == (c.received_b, c.received_a)]
    return WireResult(
        num_messages=len(messages),
        payload_bytes=int(messages.payload_bytes.sum()),
        attributed_pct=100 * attributed_share(wire),
        bytes_by_kind={
            kind.label: int(messages.size_bytes[messages.kind == kind].sum())
            for kind in MessageKind
        },
        num_equal_connections=len(equal),
        num_whole_connections=len(whole),
        processes=[
            ProcessResult(
                rank=_or_null(process.rank),
                pid=process.pid,
                host=process.host,
                num_calls=process.num_calls,
                calls_written_over=process.calls_written_over,
                calls_not_kept=process.calls_not_kept,
                bytes_not_kept=process.bytes_not_kept,
                connections_lost=process.connections_lost,
                clock=process.clock,
            )
            for process in wire.processes
        ],
        connections=connections,
        links=_links(wire, {} if trace is None else utilization_over_step(wire, trace)),
        collectives=_collectives(wire),
        time_of_collectives=None if trace is None else time_of_collectives(wire, trace),
        ledger=list(wire.ledger),
    )


def _connections(wire: Wire) -> list[ConnectionResult]:
    rows = wire.connections
    rank_a, rank_b = wire.ranks_of(rows.process_a), wire.ranks_of(rows.process_b)
    return [
        ConnectionResult(
            rank_a=_or_null(int(rank_a[i])),
            rank_b=_or_null(int(rank_b[i])),
            address_a=wire.strings[int(rows.address_a[i])],
            address_b=wire.strings[int(rows.address_b[i])],
            sent_a=int(rows.sent_a[i]),
            received_b=_or_null(int(rows.received_b[i])),
            sent_b=_or_null(int(rows.sent_b[i])),
            received_a=int(rows.received_a[i]),
            rtt_ns=_or_null(int(rows.rtt_ns[i])),
            is_late=bool(rows.is_late[i]),
        )
        for i in range(len(rows))
    ]


def _links(wire: Wire, utilization: dict[RankPair, list[float]]) -> list[LinkResult]:
    messages = wire.messages
    src, dst = wire.ranks_of(messages.src), wire.ranks_of(messages.dst)
    is_job_traffic = (src >= 0) & (dst >= 0) & (src != dst) & (messages.kind != MessageKind.OWN)
    rows = np.flatnonzero(is_job_traffic)
    rows = rows[np.lexsort((messages.received_ns[rows], dst[rows], src[rows]))]
    borders = np.flatnonzero((np.diff(src[rows]) != 0) | (np.diff(dst[rows]) != 0)) + 1
    retransmits = _retransmits(wire)
    return [
        _link(messages, own, (int(src[own[0]]), int(dst[own[0]])), retransmits, utilization)
        for own in np.split(rows, borders)
        if len(own)
    ]


def _link(
    messages: Messages,
    rows: NDArray[np.intp],
    ranks: RankPair,
    retransmits: dict[RankPair, int],
    utilization: dict[RankPair, list[float]],
) -> LinkResult:
    size, payload = messages.size_bytes[rows], messages.payload_bytes[rows]
    known = payload[messages.kind[rows] != MessageKind.UNKNOWN]
    timed = rows[(messages.send_ns[rows] != NONE) & (messages.received_ns[rows] != NONE)]
    delay = (messages.received_ns - messages.send_ns)[timed]
    busy_ns = _busy_ns(messages, timed)
    refused_ns = int(messages.refused_ns[timed].sum())
    return LinkResult(
        src=ranks[0],
        dst=ranks[1],
        num_messages=len(rows),
        size_bytes=int(size.sum()),
        payload_bytes=int(payload.sum()),
        attributed_bytes=int(known.sum()),
        rate_bytes_per_s=median_rate_bytes_per_s(messages, timed),
        shortest_delay_ns=int(delay.min()) if len(delay) else None,
        busy_ns=busy_ns,
        refused_pct=min(100.0, 100 * refused_ns / busy_ns) if busy_ns else None,
        retransmits=retransmits.get(ranks),
        use_over_step_pct=utilization.get(ranks, []),
    )


def _busy_ns(messages: Messages, rows: NDArray[np.intp]) -> int:
    if not len(rows):
        return 0
    order = rows[np.argsort(messages.send_ns[rows], kind="stable")]
    begin, end = messages.send_ns[order], messages.received_ns[order]
    reached = np.maximum.accumulate(end)
    gaps = np.maximum(0, begin[1:] - reached[:-1])
    return max(0, int(reached[-1] - begin[0] - gaps.sum()))


def _retransmits(wire: Wire) -> dict[RankPair, int]:
    rows = wire.connections
    rank_a, rank_b = wire.ranks_of(rows.process_a), wire.ranks_of(rows.process_b)
    found: dict[RankPair, int] = defaultdict(int)
    for a, b, from_a, from_b in zip(
        rank_a.tolist(),
        rank_b.tolist(),
        rows.retransmits_a.tolist(),
        rows.retransmits_b.tolist(),
        strict=True,
    ):
        if from_a != NONE:
            found[a, b] += from_a
        if from_b != NONE:
            found[b, a] += from_b
    return dict(found)


def _collectives(wire: Wire) -> list[CollectiveResult]:
    rows = wire.collectives
    alike: dict[tuple[int, int, int], list[int]] = defaultdict(list)
    for row in range(len(rows)):
        key = int(rows.kind[row]), int(rows.algorithm[row]), int(rows.num_ranks[row])
        alike[key].append(row)
    return [
        CollectiveResult(
            kind=OpKind(kind).label,
            algorithm=Algorithm(algorithm).label,
            num_ranks=num_ranks,
            count=len(own),
            size_bytes=int(rows.size_bytes[own].sum()),
            payload_bytes=int(rows.payload_bytes[own].sum()),
            expected_bytes=(
                int(rows.expected_bytes[own].sum())
                if (rows.expected_bytes[own] >= 0).all()
                else None
            ),
            num_exact=int((rows.expected_bytes[own] == rows.payload_bytes[own]).sum()),
        )
        for (kind, algorithm, num_ranks), own in sorted(alike.items())
    ]


def _or_null(value: int) -> int | None:
    return None if value == NONE else value
