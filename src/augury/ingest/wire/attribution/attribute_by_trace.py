"""Payload between ranks as what a Trace says that they did."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from augury.core.columns import I4, I8
from augury.core.graph.graph import NONE
from augury.core.ledger import Ledger, Severity
from augury.core.trace.trace import Trace
from augury.core.wire import MessageKind
from augury.ingest.wire.attribution.attribution import Meaning, between, collectives_of
from augury.ingest.wire.attribution.collective_spans import SLACK_NS, shared_of, spans_between
from augury.ingest.wire.attribution.match_messages import assign
from augury.ingest.wire.attribution.message_kinds import Kinds
from augury.ingest.wire.messages import Columns


def meaning_by_trace(
    messages: Columns, kinds: Kinds, ranks: tuple[I4, I4], trace: Trace, ledger: Ledger
) -> Meaning:
    """``ranks``: of the sender and the receiver of each message."""
    meaning = Meaning.of(kinds)
    shared = shared_of(trace)
    for src, dst, rows in between(messages, kinds.is_gloo, ranks):
        times_ns, lengths = messages["send_ns"][rows], kinds.payload_bytes[rows]
        numbers, spans = spans_between(shared, src, dst, times_ns, lengths)
        given = np.array(
            assign(times_ns.tolist(), lengths.tolist(), spans, slack_ns=SLACK_NS), dtype=np.int64
        )
        order = np.argsort(given, kind="stable")
        for own in np.split(order, np.flatnonzero(np.diff(given[order])) + 1):
            if len(own) and given[own[0]] != NONE:
                one = shared[numbers[int(given[own[0]])]]
                kind = (
                    MessageKind.POINT_TO_POINT if one.is_from_one_to_one else MessageKind.COLLECTIVE
                )
                meaning.give(rows[own], kind, one.group, one.sequence)
    _give_rest(messages, kinds, ranks[0], trace, meaning, ledger)
    meaning.collectives = collectives_of(shared, kinds.payload_bytes, meaning, ledger)
    return meaning


def _give_rest(
    messages: Columns, kinds: Kinds, src_rank: I4, trace: Trace, meaning: Meaning, ledger: Ledger
) -> None:
    """What was sent outside of all recorded steps has no counterpart in the Trace. On connections
    that were opened after the first of them, and not used in any, Augury has calibrated."""
    is_left = kinds.is_gloo & (meaning.kind == MessageKind.UNKNOWN)
    is_outside = ~_in_recorded_steps(messages["send_ns"], src_rank, trace)
    connection = messages["connection"]
    used = np.unique(connection[meaning.sequence != NONE])
    outside = is_left & is_outside
    meaning.kind[outside] = MessageKind.COLLECTIVE
    if trace.calibration:
        steps = _recorded_steps(trace)
        first_ns = int(trace.steps.start_ns[steps].min()) if steps.any() else 0
        inside = np.unique(connection[kinds.is_gloo & ~is_outside])
        before = np.unique(connection[kinds.is_gloo & (messages["send_ns"] < first_ns)])
        own = kinds.is_gloo & ~np.isin(connection, np.concatenate([used, inside, before]))
        meaning.kind[own] = MessageKind.OWN
    ledger.note(
        "wire-outside-windows",
        "payload was sent outside of recorded steps: which collective it was is not known",
        severity=Severity.INFO,
        count=int((outside & (meaning.kind != MessageKind.OWN)).sum()),
    )
    unknown = kinds.is_gloo & (meaning.kind == MessageKind.UNKNOWN)
    ledger.note(
        "wire-unexplained",
        "payload between ranks belongs to no communication that was recorded",
        count=int(unknown.sum()),
    )


def _recorded_steps(trace: Trace) -> NDArray[np.bool_]:
    """Rows of Trace.steps of which there are events."""
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
