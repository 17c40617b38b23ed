"""Matches sends with receives, and both with the compute that makes or needs their data."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np

from augury.core.columns import I8
from augury.ingest.formats.table.rank_places import RankPlaces
from augury.ingest.formats.table.table_rows import TableRows

TOLERANCE_NS = 2_000_000
"""Largest error of clocks between ranks, and between an operation and its cause."""
MAX_ALIGNED = 1 << 17
"""Largest product of the numbers of sends and receives that are aligned by their times."""

_OFFSETS = {"forward": 1, "backward": -1}
"""Offset of the stage to which a direction sends."""
_Queue = dict[str, list[int]]
"""Rows by kind of operation, in order of their starts."""


@dataclass(frozen=True)
class TableMessages:
    """Matched sends and receives of a table."""

    pairs: list[tuple[int, int]] = field(default_factory=list)
    """Rows of a send and of its receive."""
    cause: dict[int, int] = field(default_factory=dict)
    """Row of the compute that made the data of a send; row of the receive that a compute needs."""
    idle: set[int] = field(default_factory=set)
    """Rows of sends and receives at the ends of the pipeline, which move nothing."""


def match_messages(rows: TableRows, places: RankPlaces) -> TableMessages:
    found = TableMessages()
    queues = _queues(rows)
    num_chunks = int(rows.chunk.max()) + 1
    for queue in queues.values():
        for direction in _OFFSETS:
            _attach(rows, queue, direction, num_chunks, found)
    for (step, rank), queue in queues.items():
        for direction, offset in _OFFSETS.items():
            peer = places.peer(rank, offset)
            if peer is None:
                continue
            there = queues.get((step, peer), {})
            sends = [row for row in queue.get(f"{direction}-send", []) if row not in found.idle]
            receives = [row for row in there.get(f"{direction}-recv", []) if row not in found.idle]
            found.pairs.extend(_pairs(rows, sends, receives))
    return found


def _queues(rows: TableRows) -> dict[tuple[int, int], _Queue]:
    """Returns the messages and the compute of each step and rank."""
    wanted = {
        number: text
        for number, text in enumerate(rows.optypes)
        if text.partition("-")[0] in _OFFSETS
        and text.partition("-")[2] in ("send", "recv", "compute")
    }
    queues: dict[tuple[int, int], _Queue] = defaultdict(lambda: defaultdict(list))
    chosen = np.flatnonzero(np.isin(rows.optype, list(wanted)))
    for row, step, rank, optype in zip(
        chosen.tolist(),
        rows.step[chosen].tolist(),
        rows.rank[chosen].tolist(),
        rows.optype[chosen].tolist(),
        strict=True,
    ):
        queues[step, rank][wanted[optype]].append(row)
    return queues


def _attach(
    rows: TableRows, queue: _Queue, direction: str, num_chunks: int, found: TableMessages
) -> None:
    """Attaches the messages of a rank and step to its compute, and finds those that move
    nothing: profilers may record one send and one receive for each compute, even where the first
    chunk of the model receives nothing and the last one sends nothing."""
    compute = queue.get(f"{direction}-compute", [])
    chunks = rows.chunk[compute]
    is_known = num_chunks > 0 and bool((chunks >= 0).all())
    first, last = (0, num_chunks - 1) if direction == "forward" else (num_chunks - 1, 0)
    for ending, border in (("send", last), ("recv", first)):
        messages = queue.get(f"{direction}-{ending}", [])
        if is_known and len(messages) == len(compute):
            # One message for each compute, in order.
            for message, own, chunk in zip(messages, compute, chunks.tolist(), strict=True):
                if chunk == border:
                    found.idle.add(message)
                else:
                    _link(rows, ending, message, own, found)
            continue
        needing = [
            own
            for own, chunk in zip(compute, chunks.tolist(), strict=True)
            if not is_known or chunk != border
        ]
        if len(messages) == len(needing):
            for message, own in zip(messages, needing, strict=True):
                _link(rows, ending, message, own, found)
        else:
            _attach_by_time(rows, ending, messages, needing, found)


def _link(rows: TableRows, ending: str, message: int, compute: int, found: TableMessages) -> None:
    """Links a message to its compute unless their times contradict that."""
    before, after = (compute, message) if ending == "send" else (message, compute)
    if rows.end_ns[before] <= rows.start_ns[after] + TOLERANCE_NS:
        found.cause[after] = before


def _attach_by_time(
    rows: TableRows, ending: str, messages: list[int], compute: list[int], found: TableMessages
) -> None:
    """A send follows the last compute that has ended; a receive precedes the first compute that
    has no receive yet and starts after it."""
    start_ns, end_ns = rows.start_ns[compute], rows.end_ns[compute]
    free = 0
    for message in messages:
        if ending == "send":
            at = int(np.searchsorted(end_ns, rows.start_ns[message] + TOLERANCE_NS, "right")) - 1
            if at >= 0:
                found.cause[message] = compute[at]
            continue
        at = max(free, int(np.searchsorted(start_ns, rows.end_ns[message] - TOLERANCE_NS)))
        if at < len(compute):
            found.cause[compute[at]] = message
            free = at + 1


def _pairs(rows: TableRows, sends: list[int], receives: list[int]) -> list[tuple[int, int]]:
    """Returns the pairs of one channel in one step. Sequence numbers and positions are tried
    first; if times contradict both, the two sequences are aligned by their ends."""
    if not sends or not receives:
        return []
    numbers = rows.seq_id[sends].tolist(), rows.seq_id[receives].tolist()
    best: list[tuple[int, int]] = []
    if all(len({*own}) == len(own) and min(own) >= 0 for own in numbers):
        receive_of = dict(zip(numbers[1], receives, strict=True))
        by_number = [
            (send, receive_of[number])
            for send, number in zip(sends, numbers[0], strict=True)
            if number in receive_of
        ]
        best = _possible(rows, by_number)
    if len(best) < min(len(sends), len(receives)):
        in_order = _possible(rows, list(zip(sends, receives, strict=False)))
        best = max(best, in_order, key=len)
    if len(best) < min(len(sends), len(receives)):
        best = max(best, _aligned(rows, sends, receives), key=len)
    return best


def _possible(rows: TableRows, pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Leaves out pairs that were received before they were sent."""
    return [
        (send, receive)
        for send, receive in pairs
        if rows.end_ns[receive] >= rows.start_ns[send] - TOLERANCE_NS
    ]


def _aligned(rows: TableRows, sends: list[int], receives: list[int]) -> list[tuple[int, int]]:
    """Aligns two sequences so that pairs end together. Leaving out a message costs as much as a
    distance of half a typical message interval."""
    num_sends, num_receives = len(sends), len(receives)
    if num_sends * num_receives > MAX_ALIGNED:
        return []
    ends = rows.end_ns[sends], rows.end_ns[receives]
    skip = 0.5 * max(TOLERANCE_NS, min(_interval(own) for own in ends))
    apart = np.abs(ends[0][:, None] - ends[1][None, :]).astype(np.float64)
    impossible = ends[1][None, :] < rows.start_ns[sends][:, None] - TOLERANCE_NS
    apart[impossible] = np.inf
    cost = np.empty((num_sends + 1, num_receives + 1))
    cost[0] = skip * np.arange(num_receives + 1)
    cost[:, 0] = skip * np.arange(num_sends + 1)
    places = np.arange(num_receives + 1)
    for i in range(num_sends):
        row = np.minimum(cost[i] + skip, np.concatenate([[np.inf], cost[i, :-1] + apart[i]]))
        row[0] = cost[i + 1, 0]
        # Skipping receives is a running minimum along the row.
        cost[i + 1] = np.minimum.accumulate(row - skip * places) + skip * places
    pairs: list[tuple[int, int]] = []
    i, j = num_sends, num_receives
    while i and j:
        here = cost[i, j]
        if np.isclose(here, cost[i - 1, j - 1] + apart[i - 1, j - 1]):
            i, j = i - 1, j - 1
            pairs.append((sends[i], receives[j]))
        elif np.isclose(here, cost[i - 1, j] + skip):
            i -= 1
        else:
            j -= 1
    return pairs[::-1]


def _interval(ends_ns: I8) -> float:
    return float(np.median(np.diff(ends_ns))) if len(ends_ns) > 1 else 0.0
