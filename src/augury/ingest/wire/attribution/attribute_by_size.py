"""Payload between ranks as what the lengths of messages give away, where there is no Trace."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np

from augury.core.columns import I4
from augury.core.enums import OpKind
from augury.core.ledger import Ledger
from augury.core.wire import Algorithm, MessageKind
from augury.ingest.wire.attribution.attribution import Meaning, Rows, between, collectives_of
from augury.ingest.wire.attribution.collective_spans import Shared
from augury.ingest.wire.attribution.find_rings import find_rings
from augury.ingest.wire.attribution.message_kinds import Kinds
from augury.ingest.wire.messages import Columns


def meaning_by_lengths(
    messages: Columns, kinds: Kinds, ranks: tuple[I4, I4], num_ranks: int
) -> Meaning:
    """Group 0 is all ranks; all-reduces are numbered in the order of their first messages. The
    n-th of one size is the same one on all links."""
    meaning = Meaning.of(kinds)
    links = [
        (src, rows)
        for src, dst, rows in between(messages, kinds.is_gloo, ranks)
        if dst == (src - 1) % num_ranks
    ]
    usual = Counter(
        size_bytes
        for src, rows in links
        for size_bytes, _ in _rings(messages, kinds, rows, num_ranks, src, {})
    )
    rings: dict[tuple[int, int], list[Rows]] = {}
    for src, rows in links:
        seen: Counter[int] = Counter()
        for size_bytes, own in _rings(messages, kinds, rows, num_ranks, src, usual):
            rings.setdefault((size_bytes, seen[size_bytes]), []).append(own)
            seen[size_bytes] += 1
    shared: list[Shared] = []
    send_ns = messages["send_ns"]
    for (size_bytes, _), parts in sorted(
        rings.items(), key=lambda item: min(int(send_ns[own[0]]) for own in item[1])
    ):
        for own in parts:
            meaning.give(own, MessageKind.COLLECTIVE, 0, len(shared))
        members = range(num_ranks)
        shared.append(
            Shared(0, len(shared), OpKind.ALL_REDUCE, members, size_bytes, algorithm=Algorithm.RING)
        )
    meaning.collectives = collectives_of(shared, kinds.payload_bytes, meaning, Ledger())
    return meaning


def _rings(
    messages: Columns,
    kinds: Kinds,
    rows: Rows,
    num_ranks: int,
    place: int,
    usual: Mapping[int, int],
) -> list[tuple[int, Rows]]:
    """Size and messages of each, in the order of their first messages. Several connections between
    two ranks are of several groups, which do not wait for each other."""
    found: list[tuple[int, Rows]] = []
    connection = messages["connection"][rows]
    for one in np.unique(connection).tolist():
        own = rows[connection == one]
        lengths = kinds.payload_bytes[own]
        for ring in find_rings(messages["send_ns"][own], lengths, num_ranks, place, usual):
            found.append((ring.size_bytes, own[ring.rows]))
    return sorted(found, key=lambda entry: int(messages["send_ns"][entry[1][0]]))
