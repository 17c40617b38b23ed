"""What the payload between ranks was for: collectives of a Trace, or what lengths give away."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from augury.core.graph import NONE
from augury.core.kinds import OpKind
from augury.core.ledger import Ledger, Severity
from augury.core.table import I4, I8, U1
from augury.core.trace import Trace
from augury.core.wire import Algorithm, Collectives, MessageKind
from augury.ingest.gloo import all_reduce_bytes
from augury.ingest.wire_kinds import Kinds
from augury.ingest.wire_match import assign
from augury.ingest.wire_messages import Columns
from augury.ingest.wire_rings import find_rings
from augury.ingest.wire_spans import Shared, shared_of, spans_between

Rows = NDArray[np.intp]


@dataclass(slots=True)
class Meaning:
    """Columns of Messages, filled in bit by bit."""

    kind: U1
    group: I4
    sequence: I4
    turn: I4
    collectives: Collectives

    @classmethod
    def of(cls, kinds: Kinds) -> Meaning:
        size = len(kinds.kind)
        none = np.full((3, size), NONE, dtype=np.int32)
        return cls(kinds.kind.copy(), none[0], none[1], none[2], Collectives.empty())

    def give(self, rows: Rows, kind: MessageKind, group: int, sequence: int) -> None:
        """All that one rank sends another for one collective, in order."""
        self.kind[rows] = kind
        self.group[rows], self.sequence[rows] = group, sequence
        self.turn[rows] = np.arange(len(rows))


def meaning_by_trace(
    messages: Columns, kinds: Kinds, ranks: tuple[I4, I4], trace: Trace, ledger: Ledger
) -> Meaning:
    """``ranks``: of the sender and the receiver of each message."""
    meaning = Meaning.of(kinds)
    shared = shared_of(trace)
    for src, dst, rows in _between(messages, kinds.is_gloo, ranks):
        times_ns, lengths = messages["send_ns"][rows], kinds.payload_bytes[rows]
        numbers, spans = spans_between(shared, src, dst, times_ns, lengths)
        given = np.array(assign(times_ns.tolist(), lengths.tolist(), spans), dtype=np.int64)
        for span in np.unique(given[given != NONE]).tolist():
            one = shared[numbers[span]]
            kind = MessageKind.POINT_TO_POINT if one.is_from_one_to_one else MessageKind.COLLECTIVE
            meaning.give(rows[given == span], kind, one.group, one.sequence)
    _give_rest(messages, kinds, ranks[0], trace, meaning, ledger)
    meaning.collectives = _collectives(shared, kinds.payload_bytes, meaning, ledger)
    return meaning


def meaning_by_lengths(
    messages: Columns, kinds: Kinds, ranks: tuple[I4, I4], num_ranks: int
) -> Meaning:
    """Group 0 is all ranks; the n-th all-reduce between two ranks has sequence n - 1."""
    meaning = Meaning.of(kinds)
    sizes: dict[int, int] = {}
    for src, dst, rows in _between(messages, kinds.is_gloo, ranks):
        if dst != (src - 1) % num_ranks:
            continue
        lengths = kinds.payload_bytes[rows]
        for number, ring in enumerate(
            find_rings(messages["send_ns"][rows], lengths, num_ranks, src)
        ):
            own = rows[ring.first : ring.first + ring.count]
            meaning.give(own, MessageKind.COLLECTIVE, 0, number)
            sizes.setdefault(number, ring.size_bytes)
    shared = [
        Shared(0, number, OpKind.ALL_REDUCE, range(num_ranks), size, element_bytes=1)
        for number, size in sorted(sizes.items())
    ]
    meaning.collectives = _collectives(shared, kinds.payload_bytes, meaning, Ledger())
    return meaning


def _between(
    messages: Columns, chosen: NDArray[np.bool_], ranks: tuple[I4, I4]
) -> Iterator[tuple[int, int, Rows]]:
    """Those from each rank to each other one, in the order in which they were sent."""
    src, dst = ranks
    rows = np.flatnonzero(chosen & (src >= 0) & (dst >= 0) & (messages["send_ns"] >= 0))
    order = np.lexsort((messages["send_ns"][rows], dst[rows], src[rows]))
    rows = rows[order]
    if not len(rows):
        return
    borders = np.flatnonzero((np.diff(src[rows]) != 0) | (np.diff(dst[rows]) != 0)) + 1
    for own in np.split(rows, borders):
        yield int(src[own[0]]), int(dst[own[0]]), own


def _give_rest(
    messages: Columns, kinds: Kinds, src_rank: I4, trace: Trace, meaning: Meaning, ledger: Ledger
) -> None:
    """What was sent outside of all recorded steps has no counterpart in the Trace. On connections
    that recorded collectives use it was of the same kind; on such as were opened after the first
    recorded step, and not used in any, Augury has calibrated."""
    is_left = kinds.is_gloo & (meaning.kind == MessageKind.UNKNOWN)
    is_outside = ~_in_recorded_steps(messages["send_ns"], src_rank, trace)
    connection = messages["connection"]
    used = np.unique(connection[meaning.sequence != NONE])
    outside = is_left & is_outside & np.isin(connection, used)
    meaning.kind[outside] = MessageKind.COLLECTIVE
    ledger.note(
        "wire-outside-windows",
        "payload was sent outside of recorded steps: which collective it was is not known",
        severity=Severity.INFO,
        count=int(outside.sum()),
    )
    if trace.calibration:
        steps = _recorded_steps(trace)
        first_ns = int(trace.steps.start_ns[steps].min()) if steps.any() else 0
        inside = np.unique(connection[kinds.is_gloo & ~is_outside])
        before = np.unique(connection[kinds.is_gloo & (messages["send_ns"] < first_ns)])
        own = kinds.is_gloo & ~np.isin(connection, np.concatenate([used, inside, before]))
        meaning.kind[own] = MessageKind.OWN
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


def _collectives(
    shared: Sequence[Shared], payload_bytes: I8, meaning: Meaning, ledger: Ledger
) -> Collectives:
    rows = np.flatnonzero(meaning.sequence != NONE)
    sent: dict[tuple[int, int], int] = {}
    keys = meaning.group[rows].astype(np.int64) << 32 | meaning.sequence[rows]
    found, place = np.unique(keys, return_inverse=True)
    sums = np.bincount(place, weights=payload_bytes[rows].astype(np.float64), minlength=len(found))
    for key, total in zip(found.tolist(), sums.tolist(), strict=True):
        sent[key >> 32, key & 0xFFFFFFFF] = round(total)
    expected = [_expected(one) for one in shared]
    payload = [sent.get((one.group, one.sequence), 0) for one in shared]
    odd = [one for one, e, p in zip(shared, expected, payload, strict=True) if e not in (NONE, p)]
    ledger.note(
        "wire-unequal-collective",
        "for a collective more or less was sent than its size says",
        count=len(odd),
        remedy="a larger buffer (--wire-events) if calls were written over",
        example=f"{odd[0].kind.label} {odd[0].sequence} of group {odd[0].group}" if odd else "",
    )
    return Collectives(
        group=np.array([one.group for one in shared]),
        sequence=np.array([one.sequence for one in shared]),
        kind=np.array([one.kind for one in shared]),
        algorithm=np.array(
            [Algorithm.RING if one.element_bytes else Algorithm.UNKNOWN for one in shared]
        ),
        num_ranks=np.array([len(one.members) for one in shared]),
        size_bytes=np.array([one.size_bytes for one in shared]),
        payload_bytes=np.array(payload),
        expected_bytes=np.array(expected),
    )


def _expected(one: Shared) -> int:
    """What all ranks together should have sent."""
    size = len(one.members)
    if one.size_bytes <= 0:
        return NONE
    if one.kind in (OpKind.ALL_REDUCE, OpKind.REDUCE_SCATTER):
        return all_reduce_bytes(one.size_bytes, size)
    if one.kind in (OpKind.ALL_GATHER, OpKind.BROADCAST):
        return (size - 1) * one.size_bytes
    return one.size_bytes if one.is_from_one_to_one else NONE
