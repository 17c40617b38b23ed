"""What payload between ranks was for, as it is filled in bit by bit."""

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
from augury.ingest.wire.attribution.collective_spans import Shared
from augury.ingest.wire.attribution.gloo_messages import all_reduce_bytes
from augury.ingest.wire.attribution.message_kinds import Kinds
from augury.ingest.wire.messages import Columns

Rows = NDArray[np.intp]


@dataclass(slots=True)
class Meaning:
    """Columns of Messages, and the collectives that they belong to."""

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


def between(
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


def collectives_of(
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
        algorithm=np.array([one.algorithm for one in shared]),
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
