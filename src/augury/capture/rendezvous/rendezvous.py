"""Where the ranks of a job meet for what concerns the record alone: rank 0 listens on a socket of
its own, the others call. torch's store, which all of them reach, tells them where.

Everything is bounded in time. A caller has to know a secret that only the store told (`door.py`).
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
from datetime import timedelta
from typing import Any

from augury.capture.launcher.run_folder import num_restarts
from augury.capture.rendezvous.admission import SECRET_BYTES, Door
from augury.capture.rendezvous.framed_socket import FramedSocket
from augury.capture.rendezvous.own_address import listen

PATIENCE_S = 5.0
"""How long to wait for a rank of which nothing is heard."""

MAX_HOLD_S = 60.0


Service = Callable[[FramedSocket, int], None]
"""What rank 0 does with a call; the number is the caller's rank."""


class Host:
    """Rank 0's side. Calls are answered one by one: the clocks of two would disturb each other."""

    def __init__(self, listener: socket.socket, secret: bytes, num_others: int) -> None:
        self._callers: queue.SimpleQueue[socket.socket] = queue.SimpleQueue()
        self._door = Door(listener, secret, self._callers.put)
        self._num_others = num_others
        self._services: dict[str, Service] = {}
        self._served: dict[str, set[int]] = {}
        self._is_busy = False
        self._changed = threading.Condition()

    def start(self) -> None:
        for work in (self._door.attend, self._answer_all):
            threading.Thread(target=work, name="augury-meeting", daemon=True).start()

    def offer(self, name: str, service: Service) -> None:
        with self._changed:
            self._services[name] = service
            self._changed.notify_all()

    def wait_for(self, name: str, *, patience_s: float, ranks: set[int] | None = None) -> bool:
        """Until every other rank (or those given) was served: not much longer than any of them
        is being served, and never longer than a minute."""
        deadline_s = time.monotonic() + MAX_HOLD_S
        with self._changed:
            while not self._is_complete(name, ranks):
                has_news = self._changed.wait(patience_s) or self._is_busy
                if not has_news or time.monotonic() > deadline_s:
                    return False
        return True

    def served(self, name: str) -> set[int]:
        with self._changed:
            return set(self._served.get(name, ()))

    def _is_complete(self, name: str, ranks: set[int] | None) -> bool:
        served = self._served.get(name, set())
        return len(served) >= self._num_others if ranks is None else ranks <= served

    def _answer_all(self) -> None:
        while True:
            # A caller that fails knows that, and says so where it is.
            with (
                suppress(Exception),
                FramedSocket(self._callers.get(), timeout_s=PATIENCE_S) as call,
            ):
                self._answer(call)

    def _answer(self, call: FramedSocket) -> None:
        wish = call.receive_message()
        name, rank = str(wish["service"]), int(wish["rank"])
        with self._changed:
            # Rank 0 itself may still be on its way to where it offers this.
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
class Meeting:
    rank: int
    world_size: int
    pid: int
    host: Host | None
    """At rank 0 only."""
    address: tuple[str, int]
    secret: bytes

    def call(self, service: str, *, timeout_s: float = PATIENCE_S) -> FramedSocket:
        """Opened and answered: rank 0 now attends to nobody else."""
        call = FramedSocket(
            socket.create_connection(self.address, timeout=PATIENCE_S), timeout_s=timeout_s
        )
        try:
            call.send(self.secret)
            call.send_message(service=service, rank=self.rank)
            if call.receive_message().get("ready") is not True:
                raise ConnectionError("rank 0 does not answer as agreed")
        except BaseException:
            call.__exit__(None, None, None)
            raise
        return call


_meeting: Meeting | None = None
_is_tried = False


def meet() -> Meeting | None:
    """One for the life of the process, which outlives the process group by which it was found.
    None where there is nobody to meet; tried once only, for every try may cost seconds."""
    global _meeting, _is_tried  # noqa: PLW0603
    if _meeting is not None and _meeting.pid != os.getpid():
        return None  # a fork of the process that met
    if not _is_tried and _has_group():
        _is_tried = True
        _meeting = _arrange()
    return _meeting


def known_job() -> str:
    """A name that the ranks of this start of the job share; empty if this one met no other."""
    if _meeting is None or _meeting.pid != os.getpid():
        return ""
    return hashlib.blake2b(_meeting.secret, digest_size=8).hexdigest()


def _has_group() -> bool:
    import torch.distributed as dist

    return bool(dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1)


def _arrange() -> Meeting:
    import torch.distributed as dist
    from torch.distributed.distributed_c10d import _get_default_store

    rank, world_size, store = dist.get_rank(), dist.get_world_size(), _get_default_store()
    # torchrun may keep its store when it starts the ranks again.
    key = f"augury/meeting/{num_restarts()}"
    host = None
    if rank == 0:
        listener, secret = listen(backlog=world_size), secrets.token_bytes(SECRET_BYTES)
        host = Host(listener, secret, world_size - 1)
        host.start()
        invitation: dict[str, Any] = {
            "address": listener.getsockname()[:2],
            "secret": secret.hex(),
        }
        store.set(key, json.dumps(invitation))
    else:
        store.wait([key], timedelta(seconds=PATIENCE_S))
        invitation = json.loads(store.get(key))
    name, port = invitation["address"]
    return Meeting(
        rank=rank,
        world_size=world_size,
        pid=os.getpid(),
        host=host,
        address=(str(name), int(port)),
        secret=bytes.fromhex(invitation["secret"]),
    )
