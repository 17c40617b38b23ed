"""Gloo's protocol on TCP: which messages are gloo's, and the lengths that its collectives send.

Every message has a header of six 64-bit words. The receiver asks for the header first, and then for
as many bytes as it announces; some messages consist of a header alone. An all-reduce is a ring: one
round adds up, one round distributes the sums, in segments so that one segment travels while another
is added.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from augury.core.columns import I8, U1
from augury.core.gloo_segments import ELEMENT_SIZES, segments
from augury.core.graph.graph import NONE
from augury.core.wire import MessageKind
from augury.ingest.wire.messages import GLOO_HEADER_BYTES, Columns

MAX_CONTROL_BYTES = 16 << 10
"""Rendezvous and stores send at most this much at once; collectives of a job send more."""
_MIN_FRAMED_SHARE = 0.8
_SECRET_BYTES, _LENGTH_BYTES = 32, 4
"""First messages of a connection to the recorder's rendezvous."""


@dataclass(frozen=True, slots=True)
class MessageTypes:
    """Kind and payload of each message by its framing alone."""

    kind: U1
    payload_bytes: I8
    is_gloo: NDArray[np.bool_]
    """Payload on a connection of gloo's: a part of a collective or a point-to-point message."""


def message_types(messages: Columns) -> MessageTypes:
    size, framed = messages["size_bytes"], messages["is_framed"]
    stream = _streams(messages)
    num_streams = int(stream.max()) + 1 if len(stream) else 0
    speaks_gloo = _speak_gloo(messages, stream, num_streams)[stream]
    # The rest of a message whose beginning was not kept has no header, nor has a greeting.
    has_header = framed | ((messages["first_asked"] == NONE) & (size >= GLOO_HEADER_BYTES))
    payload = np.where(speaks_gloo & has_header, size - GLOO_HEADER_BYTES, size)
    is_greeting = speaks_gloo & (messages["position"] == 0) & ~framed
    is_short = (size < GLOO_HEADER_BYTES) & ~has_header
    is_control = speaks_gloo & ((payload == 0) | is_greeting | is_short)
    kind = np.full(len(size), MessageKind.UNKNOWN, dtype=np.uint8)
    kind[is_control] = MessageKind.CONTROL
    if speaks_gloo.any():
        # In a job that computes with gloo, other connections with small messages only are control.
        is_small = _largest_of_connection(messages) <= MAX_CONTROL_BYTES
        kind[~speaks_gloo & is_small] = MessageKind.CONTROL
    kind[~speaks_gloo & _are_own(messages)] = MessageKind.OWN
    payload = np.where(kind == MessageKind.CONTROL, 0, payload)
    return MessageTypes(kind, payload, speaks_gloo & (kind == MessageKind.UNKNOWN))


def _streams(messages: Columns) -> NDArray[np.int64]:
    """Number of the connection and direction of each message."""
    if not len(messages["connection"]):
        return np.empty(0, dtype=np.int64)
    border = (np.diff(messages["connection"]) != 0) | (np.diff(messages["src"]) != 0)
    return np.concatenate([[0], np.cumsum(border)]).astype(np.int64)


def _speak_gloo(
    messages: Columns, stream: NDArray[np.int64], num_streams: int
) -> NDArray[np.bool_]:
    """Whether each stream consists mostly of framed messages."""
    could = (messages["size_bytes"] >= GLOO_HEADER_BYTES) & (messages["first_asked"] != NONE)
    num_known = np.bincount(stream[could], minlength=num_streams)
    num_framed = np.bincount(stream[could & messages["is_framed"]], minlength=num_streams)
    found: NDArray[np.bool_] = (num_framed > 0) & (num_framed >= _MIN_FRAMED_SHARE * num_known)
    return found


def _largest_of_connection(messages: Columns) -> I8:
    """Size of the largest message on the connection of each message."""
    largest = np.zeros(int(messages["connection"].max()) + 1, dtype=np.int64)
    np.maximum.at(largest, messages["connection"], messages["size_bytes"])
    found: I8 = largest[messages["connection"]]
    return found


def _are_own(messages: Columns) -> NDArray[np.bool_]:
    """Whether messages are the recorder's. Each of its connections begins with a secret of fixed
    length, then the length of the next message."""
    connection, position = messages["connection"], messages["position"]
    is_secret = (position == 0) & (messages["size_bytes"] == _SECRET_BYTES)
    is_secret &= messages["first_asked"] == _SECRET_BYTES
    is_length = (position == _SECRET_BYTES) & (messages["first_asked"] == _LENGTH_BYTES)
    own = np.intersect1d(connection[is_secret], connection[is_length])
    return np.isin(connection, own)


@lru_cache(maxsize=512)
def all_reduce_lengths(
    size_bytes: int, num_ranks: int, place: int, element_bytes: int = ELEMENT_SIZES[0]
) -> I8:
    """Returns the payloads that the rank at ``place`` of its group sends to the rank before it."""
    if num_ranks < 2 or size_bytes <= 0:
        return np.empty(0, dtype=np.int64)
    per_rank, segment = segments(size_bytes, num_ranks, element_bytes)
    turns = np.arange(per_rank * (num_ranks - 1), dtype=np.int64)
    number = np.concatenate([(place + 1) * per_rank + turns, place * per_rank + turns])
    offset = number % (per_rank * num_ranks) * segment
    length = np.minimum(segment, size_bytes - offset)
    found: I8 = length[length > 0]
    found.flags.writeable = False
    return found


def all_gather_lengths(size_bytes: int, num_ranks: int) -> I8:
    """Returns the payloads that each rank passes on to the next, in halves; ``size_bytes`` is the
    contribution of one rank."""
    halves = [size_bytes // 2, size_bytes - size_bytes // 2]
    lengths = np.array(halves * max(0, num_ranks - 1), dtype=np.int64)
    found: I8 = lengths[lengths > 0]
    return found


def all_reduce_bytes(size_bytes: int, num_ranks: int) -> int:
    """Returns the bytes that all ranks send in total: each byte goes around the ring twice, less
    one hop each time."""
    return 2 * (num_ranks - 1) * size_bytes
