"""Infers the ranks of processes from the direction of rings, where no process states its rank."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from augury.core.columns import I4
from augury.core.graph.graph import NONE
from augury.core.ledger import Ledger, Severity
from augury.ingest.wire.attribution.find_rings import find_rings
from augury.ingest.wire.attribution.gloo_messages import MessageTypes
from augury.ingest.wire.messages import Columns

_MOST_PROCESSES = 4096
_TRIED = 2000
"""Messages of each process that are compared."""


def infer_ranks(
    ranks: Sequence[int], messages: Columns, types: MessageTypes, ledger: Ledger
) -> list[int]:
    """Returns the stated ranks of processes; if none is stated, ranks inferred from messages."""
    if any(rank >= 0 for rank in ranks) or not types.is_gloo.any():
        return list(ranks)
    circle = _circle(messages, types)
    if circle is None:
        return list(ranks)
    size = len(circle)
    best = max(range(size), key=lambda turn: (_fitting(messages, types, circle, turn), -turn))
    inferred = list(ranks)
    for at, process in enumerate(circle):
        inferred[process] = (at + best) % size
    ledger.note(
        "wire-ranks-inferred",
        "no process stated its rank; ranks were inferred from the direction of rings",
        severity=Severity.INFO,
        count=size,
        remedy="set RANK for every process of the job",
    )
    return inferred


def _circle(messages: Columns, types: MessageTypes) -> list[int] | None:
    """Processes in the order of their ranks, starting anywhere: each sends most to the rank before
    it. None if they form no circle."""
    rows = types.is_gloo & (messages["src"] != NONE) & (messages["dst"] != NONE)
    src, dst = messages["src"][rows], messages["dst"][rows]
    if not len(src):
        return None
    size = int(max(src.max(), dst.max())) + 1
    if size > _MOST_PROCESSES:
        return None
    sent = np.zeros((size, size), dtype=np.int64)
    np.add.at(sent, (src, dst), types.payload_bytes[rows])
    before: I4 = sent.argmax(axis=1).astype(np.int32)
    talking = np.unique(src)
    circle = [int(talking[0])]
    while len(circle) < len(talking):
        circle.append(int(before[circle[-1]]))
    is_whole = len(set(circle)) == len(talking) and before[circle[-1]] == circle[0]
    return [circle[0], *circle[:0:-1]] if is_whole else None


def _fitting(messages: Columns, types: MessageTypes, circle: list[int], turn: int) -> int:
    """Number of messages that fit if the first process of the circle is rank ``turn``."""
    total = 0
    for at, process in enumerate(circle):
        dst = circle[at - 1]
        rows = np.flatnonzero(
            types.is_gloo & (messages["src"] == process) & (messages["dst"] == dst)
        )
        rows = rows[np.argsort(messages["send_ns"][rows], kind="stable")][:_TRIED]
        place = (at + turn) % len(circle)
        rings = find_rings(messages["send_ns"][rows], types.payload_bytes[rows], len(circle), place)
        # A ring of one message fits at any place; long rings tell more.
        total += sum(len(ring.rows) - 1 for ring in rings)
    return total
