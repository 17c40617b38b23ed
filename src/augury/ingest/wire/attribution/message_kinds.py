"""What messages are by the way in which they are sent: framed by gloo, small talk, our own."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from augury.core.columns import I8, U1
from augury.core.graph.graph import NONE
from augury.core.wire import MessageKind
from augury.ingest.wire.attribution.gloo_messages import HEADER_BYTES
from augury.ingest.wire.messages import Columns

SMALL_TALK_BYTES = 16 << 10
"""Rendezvous and stores send no more at once; what a job computes does."""
_MOSTLY = 0.8
_SECRET_BYTES, _LENGTH_BYTES = 32, 4
"""What ranks that meet for the record send first."""


@dataclass(frozen=True, slots=True)
class Kinds:
    kind: U1
    payload_bytes: I8
    is_gloo: NDArray[np.bool_]
    """With payload, on a connection of gloo's: a part of some collective or a message."""


def kinds_of(messages: Columns) -> Kinds:
    size, framed = messages["size_bytes"], messages["is_framed"]
    stream = _streams(messages)
    num_streams = int(stream.max()) + 1 if len(stream) else 0
    speaks_gloo = _speaks_gloo(messages, stream, num_streams)[stream]
    # The rest of a message whose beginning was not kept has no header; nor has a greeting.
    has_header = framed | ((messages["first_asked"] == NONE) & (size >= HEADER_BYTES))
    payload = np.where(speaks_gloo & has_header, size - HEADER_BYTES, size)
    is_greeting = speaks_gloo & (messages["position"] == 0) & ~framed
    is_control = speaks_gloo & ((payload == 0) | is_greeting | (size < HEADER_BYTES) & ~has_header)
    kind = np.full(len(size), MessageKind.UNKNOWN, dtype=np.uint8)
    kind[is_control] = MessageKind.CONTROL
    if speaks_gloo.any():
        # Who computes with gloo talks of small things otherwise.
        of_connection = _largest(messages)
        kind[~speaks_gloo & (of_connection <= SMALL_TALK_BYTES)] = MessageKind.CONTROL
    kind[~speaks_gloo & _is_own(messages)] = MessageKind.OWN
    payload = np.where(kind == MessageKind.CONTROL, 0, payload)
    return Kinds(kind, payload, speaks_gloo & (kind == MessageKind.UNKNOWN))


def _streams(messages: Columns) -> NDArray[np.int64]:
    """A number for each direction of each connection."""
    if not len(messages["connection"]):
        return np.empty(0, dtype=np.int64)
    border = (np.diff(messages["connection"]) != 0) | (np.diff(messages["src"]) != 0)
    return np.concatenate([[0], np.cumsum(border)]).astype(np.int64)


def _speaks_gloo(
    messages: Columns, stream: NDArray[np.int64], num_streams: int
) -> NDArray[np.bool_]:
    could = (messages["size_bytes"] >= HEADER_BYTES) & (messages["first_asked"] != NONE)
    asked = np.bincount(stream[could], minlength=num_streams)
    framed = np.bincount(stream[could & messages["is_framed"]], minlength=num_streams)
    found: NDArray[np.bool_] = (framed > 0) & (framed >= _MOSTLY * asked)
    return found


def _largest(messages: Columns) -> I8:
    """The largest message of each one's connection."""
    largest = np.zeros(int(messages["connection"].max()) + 1, dtype=np.int64)
    np.maximum.at(largest, messages["connection"], messages["size_bytes"])
    found: I8 = largest[messages["connection"]]
    return found


def _is_own(messages: Columns) -> NDArray[np.bool_]:
    """Calls to rank 0's meeting begin with a secret, which rank 0 asks for as such, and with the
    length of what follows."""
    connection, position = messages["connection"], messages["position"]
    begins = (position == 0) & (messages["size_bytes"] == _SECRET_BYTES)
    begins &= messages["first_asked"] == _SECRET_BYTES
    follows = (position == _SECRET_BYTES) & (messages["first_asked"] == _LENGTH_BYTES)
    own = np.intersect1d(connection[begins], connection[follows])
    return np.isin(connection, own)
