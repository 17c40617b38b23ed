"""The rendezvous of a job's ranks for recording: rank 0 listens on its own socket, others call it.

A key-value store of the framework, which all ranks reach, carries the address and a secret. Every
operation has a time limit.
"""

from __future__ import annotations

import hashlib
import json
import os
import queue
import secrets
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from augury.capture.framework import JobStore
from augury.capture.process_identity import num_restarts
from augury.capture.rendezvous.framed_socket import FramedSocket
from augury.capture.rendezvous.listener import SECRET_BYTES, Admission, listen

PATIENCE_S = 5.0
"""Time to wait for a rank that sends nothing."""

MAX_HOLD_S = 60.0


Service = Callable[[FramedSocket, int], None]
"""Function that answers a call at rank 0; its second argument is the caller's rank."""


class RendezvousServer:
    """Rank 0's side. Calls are served one at a time: concurrent clock handshakes would disturb
    each other."""

    def __init__(self, listener: socket.socket, secret: bytes, num_others: int) -> None:
        self._admitted: queue.SimpleQueue[socket.socket] = queue.SimpleQueue()
        self._admission = Admission(listener, secret, self._admitted.put)
        self._num_others = num_others
        self._services: dict[str, Service] = {}
        self._served: dict[str, set[int]] = {}
        self._is_busy = False
        self._changed = threading.Condition()

    def start(self) -> None:
        for work in (self._admission.serve, self._serve_all):
            threading.Thread(target=work, name="augury-rendezvous", daemon=True).start()

    def offer(self, name: str, service: Service) -> None:
        with self._changed:
            self._services[name] = service
            self._changed.notify_all()

    def wait_for(self, name: str, *, patience_s: float, ranks: set[int] | None = None) -> bool:
        """Waits until all other ranks (or ``ranks``) were served: at most ``patience_s`` after
        the last activity, and never longer than a minute. Returns whether all were served."""
        deadline_s = time.monotonic() + MAX_HOLD_S
        with self._changed:
            while not self._is_complete(name, ranks):
                has_news = self._changed.wait(patience_s) or self._is_busy
                if not has_news or time.monotonic() > deadline_s:
                    return False
        return True

    def served(self, name: str) -> set[int]:
        """Returns the ranks that have been served."""
        with self._changed:
            return set(self._served.get(name, ()))

    def _is_complete(self, name: str, ranks: set[int] | None) -> bool:
        served = self._served.get(name, set())
        return len(served) >= self._num_others if ranks is None else ranks <= served

    def _serve_all(self) -> None:
        while True:
            # A failed call is reported by the rank that called.
            with (
                suppress(Exception),
                FramedSocket(self._admitted.get(), timeout_s=PATIENCE_S) as call,
            ):
                self._serve(call)

    def _serve(self, call: FramedSocket) -> None:
        request = call.receive_message()
        name, rank = str(request["service"]), int(request["rank"])
        with self._changed:
            # Rank 0 may reach the step at which it offers this service later than the caller.
            self._changed.wait_for(lambda: name in self._services, PATIENCE_S)
            service = self._services[name]
            self._is_busy = True
        try:
            call.extend(PATIENCE_S)
            call.send_message(ready=True)
            service(call, rank)
            with self._changed:
                self._served.setdefault(name, set()).add(rank)
        finally:
            with self._changed:
                self._is_busy = False
                self._changed.notify_all()


@dataclass(frozen=True, slots=True, kw_only=True)
class RendezvousMember:
    """This rank's side of the rendezvous."""

    rank: int
    world_size: int
    pid: int
    server: RendezvousServer | None
    """Only at rank 0."""
    address: tuple[str, int]
    secret: bytes

    def call(self, service: str, *, timeout_s: float = PATIENCE_S) -> FramedSocket:
        """Returns a connection that rank 0 has answered; until it is closed, rank 0 serves no
        other rank."""
        call = FramedSocket(
            socket.create_connection(self.address, timeout=PATIENCE_S), timeout_s=timeout_s
        )
        try:
            call.send(self.secret)
            call.send_message(service=service, rank=self.rank)
            if call.receive_message().get("ready") is not True:
                raise ConnectionError("unexpected answer from rank 0")
        except BaseException:
            call.__exit__(None, None, None)
            raise
        return call


class Rendezvous:
    """Joins at first use and then lasts as long as the process, longer than the framework's
    process groups."""

    def __init__(self, find_store: Callable[[], JobStore | None]) -> None:
        self._find_store = find_store
        self._member: RendezvousMember | None = None
        self._is_tried = False

    def join(self) -> RendezvousMember | None:
        """Returns None where there is no other rank. A failed attempt is not repeated, because
        each may take seconds."""
        if self._member is not None and self._member.pid != os.getpid():
            return None  # a fork of the process that joined
        if not self._is_tried and (store := self._find_store()) is not None:
            self._is_tried = True
            self._member = _join(store)
        return self._member

    def job_id(self) -> str:
        """Returns an identifier that all ranks of this start of the job share; empty if this rank
        has not joined."""
        if self._member is None or self._member.pid != os.getpid():
            return ""
        return hashlib.blake2b(self._member.secret, digest_size=8).hexdigest()


def _join(store: JobStore) -> RendezvousMember:
    # torchrun may keep its store when it restarts the ranks.
    key = f"augury/meeting/{num_restarts()}"
    server = None
    if store.rank == 0:
        listener, secret = listen(backlog=store.world_size), secrets.token_bytes(SECRET_BYTES)
        server = RendezvousServer(listener, secret, store.world_size - 1)
        server.start()
        invitation: dict[str, Any] = {
            "address": listener.getsockname()[:2],
            "secret": secret.hex(),
        }
        store.set(key, json.dumps(invitation))
    else:
        invitation = json.loads(store.get(key, timeout_s=PATIENCE_S))
    host, port = invitation["address"]
    return RendezvousMember(
        rank=store.rank,
        world_size=store.world_size,
        pid=os.getpid(),
        server=server,
        address=(str(host), int(port)),
        secret=bytes.fromhex(invitation["secret"]),
    )
