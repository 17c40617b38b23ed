"""Attributes messages to all-reduces by their lengths alone, for runs without a Trace."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np

from augury.core.columns import I4
from augury.core.enums import OpKind
from augury.core.ledger import Ledger
from augury.core.wire import Algorithm, MessageKind
from augury.ingest.wire.attribution.attribution import (
    Attribution,
    Rows,
    between,
    payload_per_collective,
)
from augury.ingest.wire.attribution.find_rings import find_rings
from augury.ingest.wire.attribution.gloo_messages import MessageTypes
from augury.ingest.wire.attribution.match_messages import WireCollective
from augury.ingest.wire.messages import Columns


def attribute_by_size(
    messages: Columns, types: MessageTypes, ranks: tuple[I4, I4], num_ranks: int
) -> Attribution:
    """Group 0 contains all ranks. All-reduces are numbered in the order of their first messages;
    the n-th all-reduce of one size is the same one on all links."""
    attribution = Attribution.unknown(types)
    links = [
        (src, rows)
        for src, dst, rows in between(messages, types.is_gloo, ranks)
        if dst == (src - 1) % num_ranks
    ]
    usual = Counter(
        size_bytes
        for src, rows in links
        for size_bytes, _ in _rings(messages, types, rows, num_ranks, src, {})
    )
    rings: dict[tuple[int, int], list[Rows]] = {}
    for src, rows in links:
        seen: Counter[int] = Counter()
        for size_bytes, own in _rings(messages, types, rows, num_ranks, src, usual):
            rings.setdefault((size_bytes, seen[size_bytes]), []).append(own)
            seen[size_bytes] += 1
    collectives: list[WireCollective] = []
    send_ns = messages["send_ns"]
    for (size_bytes, _), parts in sorted(
        rings.items(), key=lambda item: min(int(send_ns[own[0]]) for own in item[1])
    ):
        for own in parts:
            attribution.assign(own, MessageKind.COLLECTIVE, 0, len(collectives))
        collectives.append(
            WireCollective(
                group=0,
                sequence=len(collectives),
                kind=OpKind.ALL_REDUCE,
                members=range(num_ranks),
                size_bytes=size_bytes,
                algorithm=Algorithm.RING,
            )
        )
    attribution.collectives = payload_per_collective(
        collectives, types.payload_bytes, attribution, Ledger()
    )
    return attribution


def _rings(
    messages: Columns,
    types: MessageTypes,
    rows: Rows,
    num_ranks: int,
    place: int,
    usual: Mapping[int, int],
) -> list[tuple[int, Rows]]:
    """Returns size and messages of each ring in the order of first messages. Several connections
    between two ranks belong to several groups, which run independently."""
    found: list[tuple[int, Rows]] = []
    connection = messages["connection"][rows]
    for one in np.unique(connection).tolist():
        own = rows[connection == one]
        lengths = types.payload_bytes[own]
        for ring in find_rings(messages["send_ns"][own], lengths, num_ranks, place, usual):
            found.append((ring.size_bytes, own[ring.rows]))
    return sorted(found, key=lambda entry: int(messages["send_ns"][entry[1][0]]))
