"""Rank 0's listening socket, which admits callers that know the job's secret.

Callers are examined concurrently, apart from the services of rank 0: a caller that connects and
sends nothing delays no rank. Its time is short, and few such callers are held at once.
"""

from __future__ import annotations

import hmac
import os
import selectors
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import ip_address

from augury.capture.process_identity import has_other_hosts

SECRET_BYTES = 32
SECRET_PATIENCE_S = 2.0
"""Ranks send the secret as soon as they are connected."""

MAX_UNADMITTED = 64

_ANYWHERE = "192.0.2.1"
"""An address reserved for documentation: looking up the route to it sends nothing."""


def listen(*, backlog: int) -> socket.socket:
    """Listens on a free port of the one address by which the other ranks reach this host."""
    failure = OSError("this host has no address that other ranks can reach")
    for address in _candidates():
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        try:
            return socket.create_server((address, 0), family=family, backlog=backlog)
        except OSError as error:
            failure = error
    raise failure


def _candidates() -> Iterator[str]:
    """Yields addresses, best first. All ranks have reached the framework's rendezvous, which
    mostly runs at rank 0. A host's own name often resolves to its loopback, which is useless to
    other hosts."""
    is_loopback_useful = not has_other_hosts()
    master = os.environ.get("MASTER_ADDR", "localhost")
    for address in (*_resolve(master), *_source_address(master), *_resolve(socket.gethostname())):
        if is_loopback_useful or not ip_address(address.partition("%")[0]).is_loopback:
            yield address
    yield from _source_address(_ANYWHERE)


def _resolve(name: str) -> list[str]:
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError:
        return []
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def _source_address(name: str) -> list[str]:
    """Returns the address from which this host would send to ``name``."""
    for target in _resolve(name):
        family = socket.AF_INET6 if ":" in target else socket.AF_INET
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect((target, 9))
                return [str(probe.getsockname()[0])]
        except OSError:
            continue
    return []


@dataclass(slots=True)
class _Caller:
    connection: socket.socket
    deadline_s: float
    received: bytearray = field(default_factory=bytearray)


class Admission:
    """Calls ``admit`` with the connection of each caller that has sent the secret."""

    def __init__(
        self, listener: socket.socket, secret: bytes, admit: Callable[[socket.socket], None]
    ) -> None:
        self._listener = listener
        self._secret = secret
        self._admit = admit
        self._selector = selectors.DefaultSelector()
        self._callers: dict[socket.socket, _Caller] = {}
        """Callers that are not admitted yet, oldest first."""

    def serve(self) -> None:
        """Runs as long as the process lives."""
        self._listener.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ)
        while True:
            for key, _ in self._selector.select(self._timeout_s()):
                if key.fileobj is self._listener:
                    self._accept()
                else:
                    self._receive(key.data)
            self._reject_expired()

    def _timeout_s(self) -> float | None:
        oldest = next(iter(self._callers.values()), None)
        return None if oldest is None else max(0.0, oldest.deadline_s - time.monotonic())

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except BlockingIOError:
            return
        except OSError:
            time.sleep(0.05)  # perhaps out of file descriptors: the caller stays in the backlog
            return
        if len(self._callers) >= MAX_UNADMITTED:
            self._reject(next(iter(self._callers.values())))
        connection.setblocking(False)
        caller = _Caller(connection, time.monotonic() + SECRET_PATIENCE_S)
        self._callers[connection] = caller
        self._selector.register(connection, selectors.EVENT_READ, caller)

    def _receive(self, caller: _Caller) -> None:
        """Reads the secret and nothing after it, and compares it only as a whole."""
        if caller.connection not in self._callers:
            return  # rejected meanwhile, to make room for another
        part = b""
        with suppress(OSError):
            part = caller.connection.recv(SECRET_BYTES - len(caller.received))
        caller.received += part
        if not part:
            self._reject(caller)
        elif len(caller.received) == SECRET_BYTES:
            if hmac.compare_digest(caller.received, self._secret):
                self._forget(caller)
                self._admit(caller.connection)
            else:
                self._reject(caller)

    def _reject_expired(self) -> None:
        now_s = time.monotonic()
        for caller in [caller for caller in self._callers.values() if caller.deadline_s <= now_s]:
            self._reject(caller)

    def _reject(self, caller: _Caller) -> None:
        self._forget(caller)
        caller.connection.close()

    def _forget(self, caller: _Caller) -> None:
        self._selector.unregister(caller.connection)
        del self._callers[caller.connection]
