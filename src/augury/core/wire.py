"""The Wire: what went from process to process, message by message, beside a Trace or without one.

Nothing here knows a framework: processes, the TCP connections between them, and what each call
sent. What a message was for (a collective, by group and sequence) is filled in where a Trace tells.
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
    """What a message was for. Files hold the numbers: append, never renumber."""

    UNKNOWN = 0
    CONTROL = 1
    """No payload: what a communication library tells its peer, rendezvous, stores."""
    COLLECTIVE = 2
    POINT_TO_POINT = 3
    OWN = 4
    """Augury's own: handshakes, calibration, gathering."""

    @property
    def label(self) -> str:
        return self.name.lower().replace("_", "-")


class WireProcess(msgspec.Struct, frozen=True, kw_only=True):
    """One that was recorded."""

    pid: int
    host: str
    rank: int = -1
    """-1: it had none, as a launcher."""
    clock: Clock = Clock()
    num_calls: int = 0
    """That were kept."""
    calls_written_over: int = 0
    """Kept, and then lost to later ones: the buffer was full."""
    calls_not_kept: int = 0
    """Outside of windows: only counted."""
    bytes_not_kept: int = 0
    connections_lost: int = 0
    """That found no place in the table: nothing is known of their bytes."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Connections(Table):
    """One row a TCP connection; its ends are ``a`` and ``b``, and at least ``a`` was recorded.
    What an end that was not recorded would have told is NONE."""

    process_a: I4 = column("<i4")
    """Index into Wire.processes."""
    process_b: I4 = column("<i4")
    address_a: I4 = column("<i4")
    """Into Wire.strings, as ``10.0.0.1:4711``."""
    address_b: I4 = column("<i4")
    opened_ns: I8 = column("<i8")
    closed_ns: I8 = column("<i8")
    """NONE: open when the record ends."""
    sent_a: I8 = column("<i8")
    """Bytes over its whole life, windows or not."""
    received_b: I8 = column("<i8")
    sent_b: I8 = column("<i8")
    received_a: I8 = column("<i8")
    retransmits_a: I8 = column("<i8")
    """Segments that ``a`` had to send again; NONE where nobody looked."""
    retransmits_b: I8 = column("<i8")
    rtt_ns: I8 = column("<i8")
    """The shortest way there and back that TCP knew of; NONE where nobody looked."""
    is_late: U1 = column("<u1")
    """1: it was there before anybody looked, so that its bytes are counted from then on."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Messages(Table):
    """One row a message: what one call asked to send, with the calls that went on with the rest.
    Sorted by (connection, src, position). A time is NONE where that end was not recorded or did
    not keep it."""

    connection: I4 = column("<i4")
    src: I4 = column("<i4")
    """Process that sent it; NONE if it was not recorded."""
    dst: I4 = column("<i4")
    position: I8 = column("<i8")
    """Of its first byte in what this end of the connection sends."""
    size_bytes: I8 = column("<i8")
    payload_bytes: I8 = column("<i8")
    """Without the header of the communication library, where that is known."""
    send_ns: I8 = column("<i8")
    """When the first call began that sent any of it."""
    sent_ns: I8 = column("<i8")
    """When the last one returned: the kernel has it, not yet the peer."""
    arrived_ns: I8 = column("<i8")
    """When the first call returned that received any of it."""
    received_ns: I8 = column("<i8")
    """When the last one did."""
    refused_ns: I8 = column("<i8")
    """For how long the sender had more to send than the kernel took."""
    num_receives: I4 = column("<i4")
    kind: U1 = column("<u1")
    """A MessageKind."""
    group: I4 = column("<i4")
    """With ``sequence`` the collective it belongs to, as in Trace.events; else NONE."""
    sequence: I4 = column("<i4")
    turn: I4 = column("<i4")
    """The how-manieth message of this collective that its sender sends to this receiver."""


class Algorithm(IntEnum):
    """How a collective was done. Files hold the numbers: append, never renumber."""

    UNKNOWN = 0
    RING = 1
    """Every length and their order are those of a ring."""
    DIRECT = 2
    """One message from the one rank to the other."""

    @property
    def label(self) -> str:
        return self.name.lower()


@dataclass(frozen=True, kw_only=True, eq=False)
class Collectives(Table):
    """One row a collective, or a send with its receive, that a Trace tells of or that lengths of
    messages give away."""

    group: I4 = column("<i4")
    sequence: I4 = column("<i4")
    kind: U1 = column("<u1")
    """An OpKind."""
    algorithm: U1 = column("<u1")
    """An Algorithm."""
    num_ranks: I4 = column("<i4")
    size_bytes: I8 = column("<i8")
    """Of the tensor; 0: nothing tells."""
    payload_bytes: I8 = column("<i8")
    """That its ranks sent each other, as far as that was kept."""
    expected_bytes: I8 = column("<i8")
    """That they should have sent; NONE where that is not known."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Wire:
    """Immutable; ``evolve`` makes another. Times are on the run's common clock."""

    processes: list[WireProcess]
    connections: Connections
    messages: Messages
    strings: StringTable
    collectives: Collectives = field(default_factory=Collectives.empty)
    ledger: Ledger = field(default_factory=Ledger)

    def ranks_of(self, processes: I4) -> I4:
        """NONE where a process was not recorded or has no rank."""
        known = np.array([*(process.rank for process in self.processes), -1], dtype=np.int32)
        return known[processes]

    def evolve(self, **changes: Any) -> Wire:
        return replace(self, **changes)


def attributed_share(wire: Wire) -> float:
    """Of the payload between ranks in what was recorded: the part of which it is known what it was
    for. What a job sent outside of its windows, and what Augury sent, is neither."""
    messages = wire.messages
    between = (wire.ranks_of(messages.src) >= 0) & (wire.ranks_of(messages.dst) >= 0)
    payload = messages.payload_bytes * between
    unknown = int(payload[messages.kind == MessageKind.UNKNOWN].sum())
    known = int(payload[(messages.kind != MessageKind.OWN) & (messages.sequence >= 0)].sum())
    return known / (known + unknown) if known + unknown else 1.0
