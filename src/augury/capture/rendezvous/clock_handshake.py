"""What the clocks of two hosts differ by: stamps of many short exchanges, as NTP takes them.

They are kept as they are. What follows from them is for those who read the record.
"""

from __future__ import annotations

import os
import struct
import time
from typing import Any

from augury.capture.rendezvous.framed_socket import FramedSocket
from augury.capture.rendezvous.rendezvous import PATIENCE_S, meet

MAX_EXCHANGES = 60
MIN_EXCHANGES = 8
TOTAL_EXCHANGES = 4_000
"""Of all ranks: they take turns, so the many of a large job get fewer each."""

HOLD_S = 1.0
"""Rank 0 stays still for the others, for its training would blur their stamps; but only so long
after it has last heard of one."""

_STAMPS = struct.Struct("!qq")
_PING = b"?"
_END = b"."


def exchange(moment: str) -> list[dict[str, Any]]:
    """The rank's own part of its record. ``moment`` is one at which all ranks are about to call
    this. Empty at rank 0, where there is no other rank, and where anything fails."""
    try:
        meeting = meet()
        if meeting is None:
            return []
        service = f"clock/{moment}"
        if meeting.host is not None:
            meeting.host.offer(service, _answer)
            meeting.host.wait_for(service, patience_s=HOLD_S)
            return []
        with meeting.call(service, timeout_s=PATIENCE_S) as call:
            exchanges = _ask(call, num_exchanges(meeting.world_size))
        return [{"peer": 0, "moment": moment, "exchanges": exchanges}]
    except Exception:
        return []  # then the ends of collectives have to tell


def num_exchanges(world_size: int) -> int:
    return max(MIN_EXCHANGES, min(MAX_EXCHANGES, TOTAL_EXCHANGES // world_size))


def _ask(call: FramedSocket, count: int) -> list[list[int]]:
    exchanges = []
    for _ in range(count):
        sent_ns = time.time_ns()
        call.send(_PING)
        answer = call.receive(_STAMPS.size)
        received_ns = time.time_ns()
        exchanges.append([sent_ns, *_STAMPS.unpack(answer), received_ns])
    call.send(_END)
    return exchanges


def _answer(call: FramedSocket, _rank: int) -> None:
    while call.receive(1) == _PING:
        received_ns = time.time_ns()
        call.send(_STAMPS.pack(received_ns, time.time_ns()))


def has_other_hosts() -> bool:
    """Whether ranks of the job run on other hosts: the clock of one host needs no handshake."""
    world_size = os.environ.get("WORLD_SIZE", "1")
    return os.environ.get("LOCAL_WORLD_SIZE", world_size) != world_size
