"""Point-to-point messages between ranks, of which collectives and pipelines consist.

With FIFO ports a transfer is two operations with an edge: the sender's port is busy for the
overhead and the bytes, the receiver's for the latency and the cost of receiving. Several senders
to one receiver do not slow each other there; fair ports model that. With fair ports both ends are
one gang on shared ports, so that contention at either end counts; latency is a delay behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from augury.build.collectives.ports import Port, PortKind, Ports
from augury.core.enums import OpKind
from augury.core.graph.builder import GraphBuilder


class Move(NamedTuple):
    """One message: the sender has the data ``after``, the receiver is ready ``expected_after``."""

    src: Port
    dst: Port
    size_bytes: int
    after: Sequence[int]
    expected_after: Sequence[int] = ()
    receive_ns: int = 0


@dataclass(frozen=True, kw_only=True)
class NetworkPath:
    """Transfers of one communication, with the attributes that all of them share."""

    builder: GraphBuilder
    ports: Ports
    name: str
    step: int = 0
    priority: int = 0
    send_kind: OpKind = OpKind.SEND
    receive_kind: OpKind = OpKind.RECV

    def move(self, moves: Sequence[Move], stage: str = "") -> list[int]:
        """Adds messages and returns the operation of each arrival. All sends are added before all
        receives, so that ranks with the same role have the same operations in order."""
        name = f"{self.name}/{stage}" if stage else self.name
        if self.ports.kind is PortKind.FAIR:
            return self._fair(moves, name)
        return self._fifo(moves, name)

    def join(self, port: Port, ops: Sequence[int]) -> int:
        """Returns one operation that ends when all of ``ops`` have ended on a rank."""
        if len(ops) == 1:
            return ops[0]
        return self.builder.op(
            f"{self.name}/done",
            kind=OpKind.MARK,
            rank=port.rank,
            work_ns=0,
            after=ops,
            step=self.step,
        )

    def _fifo(self, moves: Sequence[Move], name: str) -> list[int]:
        links = [self.ports.link(move.src, move.dst) for move in moves]
        sends = [
            self._send(move, name, link.send_ns(move.size_bytes))
            for move, link in zip(moves, links, strict=True)
        ]
        return [
            self._receive(move, name, link.latency_ns + move.receive_ns, waits_for=[send])
            for move, link, send in zip(moves, links, sends, strict=True)
        ]

    def _fair(self, moves: Sequence[Move], name: str) -> list[int]:
        links = [self.ports.link(move.src, move.dst) for move in moves]
        gangs = [self.builder.gang() for _ in moves]
        work_ns = [link.send_ns(move.size_bytes) for move, link in zip(moves, links, strict=True)]
        for move, gang, work in zip(moves, gangs, work_ns, strict=True):
            self._send(move, name, work, gang=gang)
        receives = [
            # Posted once the sender has the data; otherwise it would occupy the port while idle.
            self._receive(move, name, work, gang=gang, waits_for=move.after)
            for move, gang, work in zip(moves, gangs, work_ns, strict=True)
        ]
        return [
            self._delay(move, name, link.latency_ns + move.receive_ns, receive)
            for move, link, receive in zip(moves, links, receives, strict=True)
        ]

    def _send(self, move: Move, name: str, work_ns: int, *, gang: int = -1) -> int:
        return self.builder.op(
            name,
            kind=self.send_kind,
            rank=move.src.rank,
            resource=move.src.sends_on,
            work_ns=work_ns,
            size_bytes=move.size_bytes,
            after=move.after,
            priority=self.priority,
            gang=gang,
            step=self.step,
        )

    def _receive(
        self,
        move: Move,
        name: str,
        work_ns: int,
        *,
        gang: int = -1,
        waits_for: Sequence[int] = (),
    ) -> int:
        return self.builder.op(
            name,
            kind=self.receive_kind,
            rank=move.dst.rank,
            resource=move.dst.receives_on,
            work_ns=work_ns,
            size_bytes=move.size_bytes,
            after=[*waits_for, *move.expected_after],
            priority=self.priority,
            gang=gang,
            step=self.step,
        )

    def _delay(self, move: Move, name: str, work_ns: int, receive: int) -> int:
        if not work_ns:
            return receive
        return self.builder.op(
            name,
            kind=OpKind.DELAY,
            rank=move.dst.rank,
            work_ns=work_ns,
            after=[receive],
            step=self.step,
        )
