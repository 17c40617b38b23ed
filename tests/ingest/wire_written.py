"""Records of socket calls, written byte by byte as docs/wire.md describes them."""

from __future__ import annotations

import gzip
import ipaddress
import struct
from dataclasses import dataclass, field
from pathlib import Path

EPOCH_NS = 1_790_000_000_000_000_000
US = 1_000
SENT, RECEIVED, STATE = 0, 1, 2
HEADER_BYTES, CONNECTION_BYTES, EVENT_BYTES = 4096, 128, 64


def event(
    number: int,
    *,
    start: int,
    end: int,
    position: int = 0,
    refused: int = 0,
    asked: int = 0,
    done: int = 0,
    connection: int = 0,
    kind: int = SENT,
    extra: int = 0,
    thread: int = 7,
) -> bytes:
    packed = struct.pack(
        "<5Q3IHBBQ",
        *(number, start, end, position, refused, asked, done, thread),
        *(connection, kind, 0, extra),
    )
    assert len(packed) == EVENT_BYTES
    return packed


def connection(
    own: tuple[str, int],
    peer: tuple[str, int],
    *,
    opened: int = EPOCH_NS,
    closed: int = 0,
    sent: int = 0,
    received: int = 0,
    flags: int = 1,
) -> bytes:
    version = ipaddress.ip_address(own[0]).version
    packed = struct.pack(
        "<10Q3I2H16s16s",
        *(opened, closed, sent, received, 1, 1, 4711, 0, 0, 0),
        *(version, flags, 1, own[1], peer[1]),
        ipaddress.ip_address(own[0]).packed,
        ipaddress.ip_address(peer[0]).packed,
    )
    assert len(packed) == CONNECTION_BYTES
    return packed


@dataclass
class Written:
    """One process's file; ``events`` are stored in the slots of their numbers."""

    rank: int = 0
    pid: int = 100
    host: str = "one"
    connections: list[bytes] = field(default_factory=list)
    events: list[bytes] = field(default_factory=list)
    num_slots: int = 64
    max_connections: int = 8
    num_events: int | None = None
    num_connections: int | None = None
    magic: bytes = b"AUGWIRE1"
    version: int = 1
    sizes: tuple[int, int, int] = (HEADER_BYTES, CONNECTION_BYTES, EVENT_BYTES)
    lost: int = 0
    not_kept: tuple[int, int] = (0, 0)

    def content(self, *, packed: bool = False) -> bytes:
        num_events = len(self.events) if self.num_events is None else self.num_events
        num_connections = (
            len(self.connections) if self.num_connections is None else self.num_connections
        )
        slots = [bytes(EVENT_BYTES)] * self.num_slots
        for place, one in enumerate(self.events):
            number = struct.unpack_from("<Q", one)[0]
            slots[(number - 1) % self.num_slots if number else place % self.num_slots] = one
        if packed:
            slots = [one for one in self.events if struct.unpack_from("<Q", one)[0]]
        header = struct.pack(
            "<8s4I8Q2q2Q64s",
            *(self.magic, self.version, *self.sizes),
            len(self.connections) if packed else self.max_connections,
            len(slots),
            *(num_connections, num_events, self.lost, 1, *self.not_kept),
            *(self.pid, self.rank, EPOCH_NS, 5, self.host.encode()),
        )
        rows = b"".join(self.connections)
        room = 0 if packed else self.max_connections * CONNECTION_BYTES
        return header.ljust(HEADER_BYTES, b"\0") + rows.ljust(room, b"\0") + b"".join(slots)

    @property
    def stem(self) -> str:
        who = f"rank-{self.rank:05d}" if self.rank >= 0 else "process"
        return f"{who}.wire-{self.pid}-{EPOCH_NS:x}"

    def write(self, folder: Path, *, packed: bool = False) -> Path:
        path = folder / f"{self.stem}{'.wire.gz' if packed else '.bin'}"
        content = self.content(packed=packed)
        path.write_bytes(gzip.compress(content) if packed else content)
        return path


class Talk:
    """Two processes and a connection between them, from both ends; every message arrives
    ``delay_ns`` after it was sent."""

    def __init__(self, *, delay_ns: int = 50 * US, num_slots: int = 4096) -> None:
        self.files = [
            Written(rank=0, pid=100, host="one", num_slots=num_slots),
            Written(rank=1, pid=101, host="two", num_slots=num_slots),
        ]
        self.now = EPOCH_NS
        self._delay_ns = delay_ns
        self._moved = [[0, 0], [0, 0]]

    def _note(self, side: int, **what: int) -> None:
        file = self.files[side]
        file.events.append(event(len(file.events) + 1, **what))

    def send(self, src: int, size: int, *, receives: tuple[tuple[int, int], ...] = ()) -> None:
        """Sends a message. ``receives``: requested and received bytes of each call; by default one
        call."""
        position = self._moved[src][SENT]
        self._note(
            src, start=self.now, end=self.now + 5 * US, position=position, asked=size, done=size
        )
        at = self.now + self._delay_ns
        for asked, done in receives or ((size, size),):
            self._note(
                1 - src, start=at - US, end=at, position=position, asked=asked, done=done,
                kind=RECEIVED,
            )  # fmt: skip
            position, at = position + done, at + US
        self._moved[src][SENT] += size
        self._moved[1 - src][RECEIVED] += size
        self.now += 200 * US

    def send_framed(self, src: int, payload: int) -> None:
        """Sends like gloo: a header, then the announced payload, in two receives."""
        rest = ((payload, payload // 2), (payload - payload // 2, payload - payload // 2))
        own = ((48, 48), *((asked, done) for asked, done in rest if done)) if payload else ()
        self.send(src, 48 + payload, receives=own or ((48, 48),))

    def write(self, folder: Path, *, packed: bool = False) -> Path:
        addresses = (("10.0.0.1", 5000), ("10.0.0.2", 6000))
        for side, file in enumerate(self.files):
            sent, received = self._moved[side]
            file.connections = [
                connection(
                    addresses[side], addresses[1 - side], sent=sent, received=received,
                    closed=self.now,
                )
            ]  # fmt: skip
            file.write(folder, packed=packed)
        return folder
