"""A connection between two ranks: bytes and JSON messages, with one deadline for all of them."""

from __future__ import annotations

import json
import socket
import struct
import time
from types import TracebackType
from typing import Any

MAX_MESSAGE_BYTES = 1 << 20

_LENGTH = struct.Struct("!I")


class FramedSocket:
    """Every operation after the deadline raises a TimeoutError."""

    def __init__(self, connection: socket.socket, *, timeout_s: float) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connection = connection
        self._deadline_s = time.monotonic() + timeout_s

    def __enter__(self) -> FramedSocket:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._connection.close()

    def extend(self, timeout_s: float) -> None:
        self._deadline_s = time.monotonic() + timeout_s

    def send(self, data: bytes) -> None:
        self._set_timeout()
        self._connection.sendall(data)

    def receive(self, num_bytes: int) -> bytes:
        data = bytearray()
        while len(data) < num_bytes:
            self._set_timeout()
            part = self._connection.recv(num_bytes - len(data))
            if not part:
                raise ConnectionError("the other rank closed the connection")
            data += part
        return bytes(data)

    def send_message(self, **message: Any) -> None:
        data = json.dumps(message).encode()
        self.send(_LENGTH.pack(len(data)) + data)

    def receive_message(self) -> dict[str, Any]:
        (num_bytes,) = _LENGTH.unpack(self.receive(_LENGTH.size))
        if num_bytes > MAX_MESSAGE_BYTES:
            raise ValueError(f"a message of {num_bytes} bytes is too long")
        message = json.loads(self.receive(num_bytes))
        if not isinstance(message, dict):
            raise ValueError("a message is not an object")
        return message

    def _set_timeout(self) -> None:
        left_s = self._deadline_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("the other rank took too long")
        self._connection.settimeout(left_s)
