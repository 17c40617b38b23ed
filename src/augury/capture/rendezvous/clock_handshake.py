"""Clock handshakes between rank 0 and the other ranks: time stamps of short exchanges, as in NTP.

The time stamps are recorded unchanged; the clocks are estimated when the record is read.
"""

from __future__ import annotations

import struct
import time

from augury.capture.rendezvous.framed_socket import FramedSocket
from augury.capture.rendezvous.rendezvous import PATIENCE_S, Rendezvous
from augury.core.trace.rank_record import Handshake

MAX_EXCHANGES = 60
MIN_EXCHANGES = 8
TOTAL_EXCHANGES = 4_000
"""Limit on the exchanges of all ranks together. Ranks take turns, so each rank of a large job makes
fewer exchanges."""

HOLD_S = 1.0
"""Rank 0 pauses its training during the handshakes, because training would delay its answers. It
resumes when all ranks are served, or when none has been active for this long."""

_STAMPS = struct.Struct("!qq")
_PING = b"?"
_END = b"."


def exchange_clocks(rendezvous: Rendezvous, moment: str) -> list[Handshake]:
    """Returns the handshake of this rank with rank 0. All ranks must call this at the same
    ``moment``. The list is empty on rank 0, in a job of one rank, and after a failure."""
    try:
        member = rendezvous.join()
        if member is None:
            return []
        service = f"clock/{moment}"
        if member.server is not None:
            member.server.offer(service, _answer)
            member.server.wait_for(service, patience_s=HOLD_S)
            return []
        with member.call(service, timeout_s=PATIENCE_S) as call:
            exchanges = _ask(call, num_exchanges(member.world_size))
        return [Handshake(peer=0, moment=moment, exchanges=exchanges)]
    except Exception:
        return []  # The clocks are then estimated from the ends of collectives.


def num_exchanges(world_size: int) -> int:
    """Returns the number of exchanges that each rank makes with rank 0."""
    return max(MIN_EXCHANGES, min(MAX_EXCHANGES, TOTAL_EXCHANGES // world_size))


def _ask(call: FramedSocket, count: int) -> list[tuple[int, int, int, int]]:
    exchanges = []
    for _ in range(count):
        sent_ns = time.time_ns()
        call.send(_PING)
        answer = call.receive(_STAMPS.size)
        received_ns = time.time_ns()
        peer_received_ns, peer_sent_ns = _STAMPS.unpack(answer)
        exchanges.append((sent_ns, peer_received_ns, peer_sent_ns, received_ns))
    call.send(_END)
    return exchanges


def _answer(call: FramedSocket, _rank: int) -> None:
    while call.receive(1) == _PING:
        received_ns = time.time_ns()
        call.send(_STAMPS.pack(received_ns, time.time_ns()))
