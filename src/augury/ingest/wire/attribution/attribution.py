"""Attribution of messages to collectives: columns to fill, and the collectives that result."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from augury.core.columns import I4, I8, U1
from augury.core.enums import OpKind
from augury.core.graph.graph import NONE
from augury.core.ledger import Ledger
from augury.core.wire import Collectives, MessageKind
from augury.ingest.wire.attribution.gloo_messages import MessageTypes, all_reduce_bytes
from augury.ingest.wire.attribution.match_messages import WireCollective
from augury.ingest.wire.messages import Columns

Rows = NDArray[np.intp]


@dataclass(slots=True)
class Attribution:
    """Columns of Messages, and the collectives that the messages belong to."""

    kind: U1
    group: I4
    sequence: I4
    turn: I4
    collectives: Collectives

    @classmethod
    def unknown(cls, types: MessageTypes) -> Attribution:
        size = len(types.kind)
        none = np.full((3, size), NONE, dtype=np.int32)
        return cls(types.kind.copy(), none[0], none[1], none[2], Collectives.empty())

    def assign(self, rows: Rows, kind: MessageKind, group: int, sequence: int) -> None:
        """``rows`` are the messages of one collective from one rank to another, in order."""
        self.kind[rows] = kind
        self.group[rows], self.sequence[rows] = group, sequence
        self.turn[rows] = np.arange(len(rows))


def between(
    messages: Columns, chosen: NDArray[np.bool_], ranks: tuple[I4, I4]
) -> Iterator[tuple[int, int, Rows]]:
    """Yields source, destination and rows of the chosen messages of each pair of ranks, in order of
    sending."""
    src, dst = ranks
    rows = np.flatnonzero(chosen & (src >= 0) & (dst >= 0) & (messages["send_ns"] >= 0))
    order = np.lexsort((messages["send_ns"][rows], dst[rows], src[rows]))
    rows = rows[order]
    if not len(rows):
        return
    borders = np.flatnonzero((np.diff(src[rows]) != 0) | (np.diff(dst[rows]) != 0)) + 1
    for own in np.split(rows, borders):
        yield int(src[own[0]]), int(dst[own[0]]), own


def payload_per_collective(
    collectives: Sequence[WireCollective],
    payload_bytes: I8,
    attribution: Attribution,
    ledger: Ledger,
) -> Collectives:
    """Compares the payload of each collective with the payload that its size implies."""
    rows = np.flatnonzero(attribution.sequence != NONE)
    sent: dict[tuple[int, int], int] = {}
    keys = attribution.group[rows].astype(np.int64) << 32 | attribution.sequence[rows]
    found, place = np.unique(keys, return_inverse=True)
    sums = np.bincount(place, weights=payload_bytes[rows].astype(np.float64), minlength=len(found))
    for key, total in zip(found.tolist(), sums.tolist(), strict=True):
        sent[key >> 32, key & 0xFFFFFFFF] = round(total)
    expected = [_expected_bytes(one) for one in collectives]
    payload = [sent.get((one.group, one.sequence), 0) for one in collectives]
    compared = zip(collectives, expected, payload, strict=True)
    odd = [one for one, due_bytes, sent_bytes in compared if due_bytes not in (NONE, sent_bytes)]
    ledger.note(
        "wire-unequal-collective",
        "the payload of a collective differs from the payload that its size implies",
        count=len(odd),
        remedy="record with a larger buffer (--wire-events) if calls were overwritten",
        example=f"{odd[0].kind.label} {odd[0].sequence} of group {odd[0].group}" if odd else "",
    )
    return Collectives(
        group=np.array([one.group for one in collectives]),
        sequence=np.array([one.sequence for one in collectives]),
        kind=np.array([one.kind for one in collectives]),
        algorithm=np.array([one.algorithm for one in collectives]),
        num_ranks=np.array([len(one.members) for one in collectives]),
        size_bytes=np.array([one.size_bytes for one in collectives]),
        payload_bytes=np.array(payload),
        expected_bytes=np.array(expected),
    )


def _expected_bytes(one: WireCollective) -> int:
    """Payload that all ranks send in total; NONE if unknown."""
    size = len(one.members)
    if one.size_bytes <= 0:
        return NONE
    if one.kind in (OpKind.ALL_REDUCE, OpKind.REDUCE_SCATTER):
        return all_reduce_bytes(one.size_bytes, size)
    if one.kind in (OpKind.ALL_GATHER, OpKind.BROADCAST):
        return (size - 1) * one.size_bytes
    return one.size_bytes if one.is_point_to_point else NONE
