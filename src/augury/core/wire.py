"""The Wire: messages between processes, with or without a Trace.

It is independent of frameworks: processes, the TCP connections between them, and the data sent by
each call. The collective of a message (group and sequence) is filled in if a Trace identifies it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any

import msgspec
import numpy as np

from augury.core.columns import I4, I8, U1, Table, column
from augury.core.ledger import Ledger
from augury.core.string_table import StringTable
from augury.core.trace.trace import Clock


class MessageKind(IntEnum):
    """Purpose of a message. Files store the numbers: append, never renumber."""

    UNKNOWN = 0
    CONTROL = 1
    """No payload: control messages of a communication library, rendezvous, stores."""
    COLLECTIVE = 2
    POINT_TO_POINT = 3
    OWN = 4
    """Messages of Augury itself: handshakes, calibration, gathering."""

    @property
    def label(self) -> str:
        return self.name.lower().replace("_", "-")


class WireProcess(msgspec.Struct, frozen=True, kw_only=True):
    """A recorded process."""

    pid: int
    host: str
    rank: int = -1
    """-1 for a process without a rank, such as a launcher."""
    clock: Clock = Clock()
    num_calls: int = 0
    """Number of calls that were kept."""
    calls_written_over: int = 0
    """Number of calls that later ones overwrote because the buffer was full."""
    calls_not_kept: int = 0
    """Number of calls outside of windows, which are only counted."""
    bytes_not_kept: int = 0
    connections_lost: int = 0
    """Number of connections that did not fit the table; their bytes are unknown."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Connections(Table):
    """One row per TCP connection. Its ends are ``a`` and ``b``, and at least ``a`` was recorded.
    Values of an end that was not recorded are NONE."""

    process_a: I4 = column("<i4")
    """Index into Wire.processes."""
    process_b: I4 = column("<i4")
    address_a: I4 = column("<i4")
    """Index into Wire.strings, of an address such as ``10.0.0.1:4711``."""
    address_b: I4 = column("<i4")
    opened_ns: I8 = column("<i8")
    closed_ns: I8 = column("<i8")
    """NONE if the connection was open when the recording ended."""
    sent_a: I8 = column("<i8")
    """Bytes over the lifetime of the connection, inside and outside of windows."""
    received_b: I8 = column("<i8")
    sent_b: I8 = column("<i8")
    received_a: I8 = column("<i8")
    retransmits_a: I8 = column("<i8")
    """Number of TCP segments that ``a`` retransmitted; NONE if unknown."""
    retransmits_b: I8 = column("<i8")
    rtt_ns: I8 = column("<i8")
    """Shortest round-trip time known to TCP; NONE if unknown."""
    is_late: U1 = column("<u1")
    """1 if the connection existed before the recorder: earlier bytes are not counted."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Messages(Table):
    """One row per message: the data of one call, and of the calls that sent the rest of it.
    Sorted by (connection, src, position). A time is NONE if that end was not recorded or did not
    keep it."""

    connection: I4 = column("<i4")
    src: I4 = column("<i4")
    """Sending process; NONE if it was not recorded."""
    dst: I4 = column("<i4")
    position: I8 = column("<i8")
    """Offset of its first byte in the data sent by this end of the connection."""
    size_bytes: I8 = column("<i8")
    payload_bytes: I8 = column("<i8")
    """Size without the header of the communication library, where that is known."""
    send_ns: I8 = column("<i8")
    """Start of the first call that sent a part of it."""
    sent_ns: I8 = column("<i8")
    """Return of the last such call: the kernel has the data, the peer does not yet."""
    arrived_ns: I8 = column("<i8")
    """Return of the first call that received a part of it."""
    received_ns: I8 = column("<i8")
    """Return of the last such call."""
    refused_ns: I8 = column("<i8")
    """Time for which the sender had more data than the kernel accepted."""
    num_receives: I4 = column("<i4")
    kind: U1 = column("<u1")
    """A MessageKind."""
    group: I4 = column("<i4")
    """Names its collective together with ``sequence``, as in Trace.events; NONE if unknown."""
    sequence: I4 = column("<i4")
    turn: I4 = column("<i4")
    """Index of the message among those of its collective from this sender to this receiver."""


class Algorithm(IntEnum):
    """Algorithm of a collective. Files store the numbers: append, never renumber."""

    UNKNOWN = 0
    RING = 1
    """All lengths and their order match a ring."""
    DIRECT = 2
    """One message from one rank to another."""

    @property
    def label(self) -> str:
        return self.name.lower()


@dataclass(frozen=True, kw_only=True, eq=False)
class Collectives(Table):
    """One row per collective, or pair of send and receive, that a Trace contains or that the
    lengths of messages reveal."""

    group: I4 = column("<i4")
    sequence: I4 = column("<i4")
    kind: U1 = column("<u1")
    """An OpKind."""
    algorithm: U1 = column("<u1")
    """An Algorithm."""
    num_ranks: I4 = column("<i4")
    size_bytes: I8 = column("<i8")
    """Size of the tensor; 0 if unknown."""
    payload_bytes: I8 = column("<i8")
    """Bytes that its ranks sent each other, as far as they were recorded."""
    expected_bytes: I8 = column("<i8")
    """Bytes that its ranks should have sent; NONE if unknown."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Wire:
    """Recorded messages of a run, with times on its common clock. Immutable; ``evolve`` makes a
    changed copy."""

    processes: list[WireProcess]
    connections: Connections
    messages: Messages
    strings: StringTable
    collectives: Collectives = field(default_factory=Collectives.empty)
    ledger: Ledger = field(default_factory=Ledger)

    def ranks_of(self, processes: I4) -> I4:
        """Rank of each process; NONE if it was not recorded or has no rank."""
        known = np.array([*(process.rank for process in self.processes), -1], dtype=np.int32)
        return known[processes]

    def evolve(self, **changes: Any) -> Wire:
        return replace(self, **changes)


def attributed_share(wire: Wire) -> float:
    """Returns the share of recorded payload between ranks that is attributed to a collective. Data
    sent outside of windows and Augury's own data do not count."""
    messages = wire.messages
    between = (wire.ranks_of(messages.src) >= 0) & (wire.ranks_of(messages.dst) >= 0)
    payload = messages.payload_bytes * between
    unknown = int(payload[messages.kind == MessageKind.UNKNOWN].sum())
    known = int(payload[(messages.kind != MessageKind.OWN) & (messages.sequence >= 0)].sum())
    return known / (known + unknown) if known + unknown else 1.0
