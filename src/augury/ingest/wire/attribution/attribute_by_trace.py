"""Attributes messages to the collectives of a Trace."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from augury.core.columns import I4, I8
from augury.core.graph.graph import NONE
from augury.core.ledger import Ledger, Severity
from augury.core.trace.trace import Trace
from augury.core.wire import MessageKind
from augury.ingest.wire.attribution.attribution import Attribution, between, payload_per_collective
from augury.ingest.wire.attribution.gloo_messages import MessageTypes
from augury.ingest.wire.attribution.match_messages import (
    SLACK_NS,
    assign,
    collectives_in,
    spans_between,
)
from augury.ingest.wire.messages import Columns


def attribute_by_trace(
    messages: Columns, types: MessageTypes, ranks: tuple[I4, I4], trace: Trace, ledger: Ledger
) -> Attribution:
    """``ranks`` has the sender's and the receiver's rank of each message."""
    attribution = Attribution.unknown(types)
    collectives = collectives_in(trace)
    for src, dst, rows in between(messages, types.is_gloo, ranks):
        times_ns, lengths = messages["send_ns"][rows], types.payload_bytes[rows]
        numbers, spans = spans_between(collectives, src, dst, times_ns, lengths)
        span_of = np.array(
            assign(times_ns.tolist(), lengths.tolist(), spans, slack_ns=SLACK_NS), dtype=np.int64
        )
        order = np.argsort(span_of, kind="stable")
        for own in np.split(order, np.flatnonzero(np.diff(span_of[order])) + 1):
            if len(own) and span_of[own[0]] != NONE:
                one = collectives[numbers[int(span_of[own[0]])]]
                kind = (
                    MessageKind.POINT_TO_POINT if one.is_point_to_point else MessageKind.COLLECTIVE
                )
                attribution.assign(rows[own], kind, one.group, one.sequence)
    _attribute_rest(messages, types, ranks[0], trace, attribution, ledger)
    attribution.collectives = payload_per_collective(
        collectives, types.payload_bytes, attribution, ledger
    )
    return attribution


def _attribute_rest(
    messages: Columns,
    types: MessageTypes,
    src_rank: I4,
    trace: Trace,
    attribution: Attribution,
    ledger: Ledger,
) -> None:
    """Messages outside of recorded steps have no counterpart in the Trace. Connections that were
    opened after the first recorded step and used in none are those of the calibration."""
    is_left = types.is_gloo & (attribution.kind == MessageKind.UNKNOWN)
    is_outside = ~_in_recorded_steps(messages["send_ns"], src_rank, trace)
    connection = messages["connection"]
    used = np.unique(connection[attribution.sequence != NONE])
    outside = is_left & is_outside
    attribution.kind[outside] = MessageKind.COLLECTIVE
    if trace.calibration:
        steps = _recorded_steps(trace)
        first_ns = int(trace.steps.start_ns[steps].min()) if steps.any() else 0
        inside = np.unique(connection[types.is_gloo & ~is_outside])
        before = np.unique(connection[types.is_gloo & (messages["send_ns"] < first_ns)])
        own = types.is_gloo & ~np.isin(connection, np.concatenate([used, inside, before]))
        attribution.kind[own] = MessageKind.OWN
    ledger.note(
        "wire-outside-windows",
        "payload was sent outside of recorded steps; its collective is unknown",
        severity=Severity.INFO,
        count=int((outside & (attribution.kind != MessageKind.OWN)).sum()),
    )
    unknown = types.is_gloo & (attribution.kind == MessageKind.UNKNOWN)
    ledger.note(
        "wire-unexplained",
        "payload between ranks belongs to no recorded communication",
        count=int(unknown.sum()),
    )


def _recorded_steps(trace: Trace) -> NDArray[np.bool_]:
    """Whether each row of ``trace.steps`` has events."""
    events, steps = trace.events, trace.steps
    seen = np.unique(events.rank.astype(np.int64) << 32 | events.step)
    return np.isin(steps.rank.astype(np.int64) << 32 | steps.step, seen)


def _in_recorded_steps(times_ns: I8, ranks: I4, trace: Trace) -> NDArray[np.bool_]:
    inside = np.zeros(len(times_ns), dtype=bool)
    recorded = _recorded_steps(trace)
    for rank in np.unique(trace.steps.rank).tolist():
        of_rank = np.flatnonzero(recorded & (trace.steps.rank == rank))
        if not len(of_rank):
            continue
        begin, end = trace.steps.start_ns[of_rank], trace.steps.end_ns[of_rank]
        rows = np.flatnonzero(ranks == rank)
        step = np.searchsorted(begin, times_ns[rows], side="right") - 1
        inside[rows] = (step >= 0) & (times_ns[rows] <= end[np.maximum(step, 0)])
    return inside
