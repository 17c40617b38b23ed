"""Which process is which rank, where none of them said: by who sends to whom in a ring."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from augury.core.columns import I4
from augury.core.graph.graph import NONE
from augury.core.ledger import Ledger, Severity
from augury.ingest.wire.attribution.find_rings import find_rings
from augury.ingest.wire.attribution.message_kinds import Kinds
from augury.ingest.wire.messages import Columns

_MOST_PROCESSES = 4096
_TRIED = 2000
"""Messages of each process that have to fit."""


def places_of(ranks: Sequence[int], messages: Columns, kinds: Kinds, ledger: Ledger) -> list[int]:
    """The rank of each process: as it said; if none did, as it follows from what they sent."""
    if any(rank >= 0 for rank in ranks) or not kinds.is_gloo.any():
        return list(ranks)
    circle = _circle(messages, kinds)
    if circle is None:
        return list(ranks)
    size = len(circle)
    best = max(range(size), key=lambda turn: (_fitting(messages, kinds, circle, turn), -turn))
    places = list(ranks)
    for at, process in enumerate(circle):
        places[process] = (at + best) % size
    ledger.note(
        "wire-ranks-inferred",
        "no process said which rank it is: taken from who sends to whom",
        severity=Severity.INFO,
        count=size,
        remedy="set RANK for every process of the job",
    )
    return places


def _circle(messages: Columns, kinds: Kinds) -> list[int] | None:
    """Processes in the order of their ranks, from any of them on: each sends most to the one
    before it."""
    rows = kinds.is_gloo & (messages["src"] != NONE) & (messages["dst"] != NONE)
    src, dst = messages["src"][rows], messages["dst"][rows]
    if not len(src):
        return None
    size = int(max(src.max(), dst.max())) + 1
    if size > _MOST_PROCESSES:
        return None
    sent = np.zeros((size, size), dtype=np.int64)
    np.add.at(sent, (src, dst), kinds.payload_bytes[rows])
    before: I4 = sent.argmax(axis=1).astype(np.int32)
    talking = np.unique(src)
    circle = [int(talking[0])]
    while len(circle) < len(talking):
        circle.append(int(before[circle[-1]]))
    is_whole = len(set(circle)) == len(talking) and before[circle[-1]] == circle[0]
    return [circle[0], *circle[:0:-1]] if is_whole else None


def _fitting(messages: Columns, kinds: Kinds, circle: list[int], turn: int) -> int:
    """How many messages fit if the first of the circle is rank ``turn``."""
    total = 0
    for at, process in enumerate(circle):
        dst = circle[at - 1]
        rows = np.flatnonzero(
            kinds.is_gloo & (messages["src"] == process) & (messages["dst"] == dst)
        )
        rows = rows[np.argsort(messages["send_ns"][rows], kind="stable")][:_TRIED]
        place = (at + turn) % len(circle)
        rings = find_rings(messages["send_ns"][rows], kinds.payload_bytes[rows], len(circle), place)
        # Few long rings say more than many of one message each, which fit whatever the place.
        total += sum(len(ring.rows) - 1 for ring in rings)
    return total
