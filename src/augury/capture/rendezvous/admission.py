"""Lets those callers in to rank 0 that know the job's secret.

Callers are looked at side by side, apart from what rank 0 does for those that it has let in: one
that connects and says nothing keeps no rank waiting. It has a short time, and there is room for
few of its kind.
"""

from __future__ import annotations

import hmac
import selectors
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

SECRET_BYTES = 32
SECRET_PATIENCE_S = 2.0
"""Ranks send the secret as soon as they are connected."""

MAX_STRANGERS = 64


@dataclass(slots=True)
class _Stranger:
    connection: socket.socket
    deadline_s: float
    said: bytearray = field(default_factory=bytearray)


class Door:
    """``let_in`` is called with the connection of each caller that has said the secret."""

    def __init__(
        self, listener: socket.socket, secret: bytes, let_in: Callable[[socket.socket], None]
    ) -> None:
        self._listener = listener
        self._secret = secret
        self._let_in = let_in
        self._selector = selectors.DefaultSelector()
        self._strangers: dict[socket.socket, _Stranger] = {}
        """Oldest first."""

    def attend(self) -> None:
        """As long as the process lives."""
        self._listener.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ)
        while True:
            for key, _ in self._selector.select(self._patience_s()):
                if key.fileobj is self._listener:
                    self._accept()
                else:
                    self._hear(key.data)
            self._show_out_late_ones()

    def _patience_s(self) -> float | None:
        oldest = next(iter(self._strangers.values()), None)
        return None if oldest is None else max(0.0, oldest.deadline_s - time.monotonic())

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except BlockingIOError:
            return
        except OSError:
            time.sleep(0.05)  # out of file descriptors, maybe: the caller stays where it is
            return
        if len(self._strangers) >= MAX_STRANGERS:
            self._show_out(next(iter(self._strangers.values())))
        connection.setblocking(False)
        stranger = _Stranger(connection, time.monotonic() + SECRET_PATIENCE_S)
        self._strangers[connection] = stranger
        self._selector.register(connection, selectors.EVENT_READ, stranger)

    def _hear(self, stranger: _Stranger) -> None:
        """Reads the secret and nothing behind it, and judges only the whole of it."""
        if stranger.connection not in self._strangers:
            return  # shown out since, for another
        part = b""
        with suppress(OSError):
            part = stranger.connection.recv(SECRET_BYTES - len(stranger.said))
        stranger.said += part
        if not part:
            self._show_out(stranger)
        elif len(stranger.said) == SECRET_BYTES:
            if hmac.compare_digest(stranger.said, self._secret):
                self._forget(stranger)
                self._let_in(stranger.connection)
            else:
                self._show_out(stranger)

    def _show_out_late_ones(self) -> None:
        now_s = time.monotonic()
        for stranger in [s for s in self._strangers.values() if s.deadline_s <= now_s]:
            self._show_out(stranger)

    def _show_out(self, stranger: _Stranger) -> None:
        self._forget(stranger)
        stranger.connection.close()

    def _forget(self, stranger: _Stranger) -> None:
        self._selector.unregister(stranger.connection)
        del self._strangers[stranger.connection]
