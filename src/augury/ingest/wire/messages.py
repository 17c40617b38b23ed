"""Messages from socket calls: the bytes that one call sends, and the calls that receive them.

TCP is a stream. A message is a range of bytes in it, and so is a receive: their positions alone
determine which belong together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from augury.core.columns import I8
from augury.core.graph.graph import NONE
from augury.core.ledger import Ledger, Severity
from augury.ingest.wire.pair_endpoints import End, Pair
from augury.ingest.wire.wire_file import WireFile
from augury.ingest.wire.wire_file_rows import RECEIVED, SENT

Columns = dict[str, NDArray[Any]]
GLOO_HEADER_BYTES = 48
_MAX_ASKED = (1 << 32) - 1
"""Largest size that a recorded call can state; a call may ask for more."""


@dataclass(frozen=True, slots=True)
class Stream:
    """Calls of one end of a connection in one direction, sorted by position."""

    start_ns: I8
    end_ns: I8
    position: I8
    refused_ns: I8
    asked: I8
    done: I8

    def __len__(self) -> int:
        return len(self.position)


class ByteStreams:
    """Calls of all files by end and direction."""

    def __init__(self, files: Sequence[WireFile], times: Sequence[tuple[I8, I8, I8]]) -> None:
        """``times`` has start, end and refusal of each file's calls on the common clock."""
        self._files, self._times = files, times
        self._places: dict[tuple[int, int, int], slice] = {}
        for number, file in enumerate(files):
            calls = file.calls
            key = calls.connection.astype(np.int64) * 2 + calls.kind
            borders = [0, *(np.flatnonzero(np.diff(key)) + 1).tolist(), len(key)]
            for first, last in pairwise(borders):
                if last > first:
                    row, kind = divmod(int(key[first]), 2)
                    self._places[number, row, kind] = slice(first, last)

    def of(self, end: End, kind: int, shift: int = 0) -> Stream:
        place = self._places.get((end.file, end.row, kind), slice(0, 0))
        calls = self._files[end.file].calls
        start_ns, end_ns, refused_ns = (column[place] for column in self._times[end.file])
        return Stream(
            start_ns, end_ns, calls.position[place] + shift, refused_ns, calls.asked[place],
            calls.done[place],
        )  # fmt: skip


def messages_of(
    files: Sequence[WireFile], pairs: Sequence[Pair], streams: ByteStreams, ledger: Ledger
) -> Columns:
    """Returns the columns of Messages that follow from calls. ``first_asked`` is the size that the
    receive asked for which begins with the message; ``is_framed`` tells whether that was a header
    of gloo's."""
    parts: list[Columns] = []
    for number, pair in enumerate(pairs):
        ways = [(pair.a, pair.b), *([(pair.b, pair.a)] if pair.b is not None else [])]
        for src, dst in ways:
            shift = _bytes_missed(files, src, dst)
            receives = streams.of(dst, RECEIVED) if dst is not None else None
            found = _sent(streams.of(src, SENT, shift), receives)
            parts.append(_with_ends(found, number, src.file, dst.file if dst is not None else NONE))
        if pair.b is None:
            found = _only_received(streams.of(pair.a, RECEIVED))
            parts.append(_with_ends(found, number, NONE, pair.a.file))
    if not parts:
        parts = [_with_ends(_only_received(_NOTHING), 0, NONE, NONE)]
    joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    order = np.lexsort((joined["position"], joined["src"], joined["connection"]))
    messages = {name: values[order] for name, values in joined.items()}
    _note_gaps(messages, ledger)
    return messages


def _bytes_missed(files: Sequence[WireFile], src: End, dst: End | None) -> int:
    """Bytes that the sender sent before the recorder saw the connection: the surplus of the bytes
    received. A connection that was opened without blocking seems late but has missed nothing."""
    if dst is None or not files[src.file].ends.is_late[src.row]:
        return 0
    sent = int(files[src.file].ends.sent_bytes[src.row])
    received = int(files[dst.file].ends.received_bytes[dst.row])
    return max(0, received - sent)


def _sent(sends: Stream, receives: Stream | None) -> Columns:
    first, last = _chains(sends)
    begin = sends.position[first]
    size = sends.position[last] + sends.done[last] - begin
    received = _received(begin, size, receives)
    return {
        "position": begin,
        "size_bytes": size,
        "send_ns": sends.start_ns[first],
        "sent_ns": sends.end_ns[last],
        "refused_ns": np.add.reduceat(_waited(sends, first), first) if len(first) else begin,
        "is_cut": sends.done[last] < sends.asked[last],
        **received,
    }


def _chains(sends: Stream) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """First and last call of each message: a call that was done in part is followed by a call that
    asks for exactly the rest."""
    if not len(sends):
        none = np.empty(0, dtype=np.intp)
        return none, none
    rest = sends.asked[:-1] - sends.done[:-1]
    goes_on = (
        (sends.position[1:] == sends.position[:-1] + sends.done[:-1])
        & (rest > 0)
        & ((sends.asked[1:] == rest) | (sends.asked[:-1] == _MAX_ASKED))
    )
    first = np.concatenate([[0], np.flatnonzero(~goes_on) + 1])
    return first, np.append(first[1:], len(sends)) - 1


def _waited(sends: Stream, first: NDArray[np.intp]) -> I8:
    """Time that each call waited since the kernel had refused, or done in part, the one before."""
    waited = np.where(sends.refused_ns > 0, sends.start_ns - sends.refused_ns, 0)
    since_rest = np.zeros_like(waited)
    since_rest[1:] = sends.start_ns[1:] - sends.end_ns[:-1]
    goes_on = np.ones(len(sends), dtype=bool)
    goes_on[first] = False
    found: I8 = np.maximum(0, np.where(goes_on, since_rest, waited))
    return found


def _received(begin: I8, size: I8, receives: Stream | None) -> Columns:
    """Times at which first and last byte of each message were received, and by which calls."""
    if receives is None or not len(receives):
        unknown = np.full(len(begin), NONE, dtype=np.int64)
        return {
            "arrived_ns": unknown,
            "received_ns": unknown,
            "num_receives": np.zeros_like(unknown),
            "first_asked": unknown,
            "is_framed": np.zeros(len(begin), dtype=bool),
        }
    ends = receives.position + receives.done
    first = np.searchsorted(ends, begin, side="right")
    last = np.searchsorted(receives.position, begin + size, side="left") - 1
    at_first, at_last = np.minimum(first, len(receives) - 1), np.maximum(last, 0)
    has_first = (first < len(receives)) & (receives.position[at_first] <= begin)
    has_last = (last >= 0) & (ends[at_last] >= begin + size)
    begins_there = has_first & (receives.position[at_first] == begin)
    first_asked = np.where(begins_there, receives.asked[at_first], NONE)
    rest = np.searchsorted(receives.position, begin + GLOO_HEADER_BYTES, side="left")
    rest_begins = (rest < len(receives)) & (
        receives.position[np.minimum(rest, len(receives) - 1)] == begin + GLOO_HEADER_BYTES
    )
    return {
        "arrived_ns": np.where(has_first, receives.end_ns[at_first], NONE),
        "received_ns": np.where(has_last, receives.end_ns[at_last], NONE),
        "num_receives": np.maximum(0, last - first + 1),
        "first_asked": first_asked,
        "is_framed": (first_asked == GLOO_HEADER_BYTES)
        & ((size == GLOO_HEADER_BYTES) | ((size > GLOO_HEADER_BYTES) & rest_begins)),
    }


_NOTHING = Stream(*(np.empty(0, dtype=np.int64) for _ in range(6)))


def _only_received(receives: Stream) -> Columns:
    """One row per call: messages are unknown where the sender was not recorded."""
    unknown = np.full(len(receives), NONE, dtype=np.int64)
    return {
        "position": receives.position,
        "size_bytes": receives.done,
        "send_ns": unknown,
        "sent_ns": unknown,
        "arrived_ns": receives.end_ns,
        "received_ns": receives.end_ns,
        "refused_ns": np.zeros_like(unknown),
        "num_receives": np.ones_like(unknown),
        "first_asked": receives.asked,
        "is_framed": np.zeros(len(receives), dtype=bool),
        "is_cut": np.zeros(len(receives), dtype=bool),
    }


def _with_ends(found: Columns, connection: int, src: int, dst: int) -> Columns:
    size = len(found["position"])
    ends = {"connection": connection, "src": src, "dst": dst}
    return {name: np.full(size, value, dtype=np.int32) for name, value in ends.items()} | found


def _note_gaps(messages: Columns, ledger: Ledger) -> None:
    between = (messages["src"] != NONE) & (messages["dst"] != NONE)
    ledger.note(
        "wire-message-not-received",
        "the receipt of a message between recorded processes was not kept",
        severity=Severity.INFO,
        count=int((between & (messages["received_ns"] == NONE)).sum()),
        remedy="record longer windows, or a larger buffer with --wire-events",
    )
    ledger.note(
        "wire-message-cut",
        "only a part of a message was kept or sent",
        severity=Severity.INFO,
        count=int(messages["is_cut"].sum()),
    )
    early = (messages["send_ns"] != NONE) & (messages["received_ns"] != NONE)
    early &= messages["received_ns"] < messages["send_ns"]
    ledger.note(
        "wire-received-before-sent",
        "a message was received before it was sent, by the aligned clocks",
        count=int(early.sum()),
        remedy="do not trust times between these processes",
    )
