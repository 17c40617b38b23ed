"""Callers that do not know the secret delay no rank at rank 0's port."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from augury.capture.rendezvous.framed_socket import FramedSocket
from augury.capture.rendezvous.rendezvous import RendezvousMember, RendezvousServer

SECRET = bytes(range(32))


@pytest.fixture(scope="module")
def member() -> Iterator[RendezvousMember]:
    """Another rank's side; rank 0's side runs in threads of this process."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = RendezvousServer(listener, SECRET, 1)
        server.offer("greet", lambda call, rank: call.send_message(greeted=rank))
        server.offer("listen", lambda call, _: call.send_message(heard=call.receive_message()))
        server.start()
        address = listener.getsockname()
        yield RendezvousMember(
            rank=1, world_size=2, pid=0, server=None, address=address, secret=SECRET
        )


def greeted(member: RendezvousMember) -> object:
    with member.call("greet") as call:
        return call.receive_message()["greeted"]


def stranger(member: RendezvousMember, said: bytes = b"") -> socket.socket:
    connection = socket.create_connection(member.address, timeout=60)
    connection.sendall(said)
    return connection


def is_rejected(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


@pytest.mark.parametrize("said", [b"", SECRET[:31]], ids=["nothing", "a part"])
def test_silent_callers_delay_no_rank(member: RendezvousMember, said: bytes):
    with ExitStack() as connections:
        strangers = [connections.enter_context(stranger(member, said)) for _ in range(100)]
        assert greeted(member) == 1
        assert all(is_rejected(connection) for connection in strangers)
        assert greeted(member) == 1


def test_a_wrong_secret_is_not_answered(member: RendezvousMember):
    for wrong in (SECRET[::-1], bytes(32), SECRET[:31] + b"?"):
        with stranger(member, wrong + b"?" * 100) as connection:
            assert is_rejected(connection)
    assert greeted(member) == 1


def test_the_secret_may_arrive_in_parts(member: RendezvousMember):
    with FramedSocket(stranger(member, SECRET[:5]), timeout_s=60) as call:
        call.send(SECRET[5:])
        call.send_message(service="greet", rank=7)
        assert call.receive_message() == {"ready": True}
        assert call.receive_message() == {"greeted": 7}


def test_callers_are_rejected_while_a_rank_is_served(member: RendezvousMember):
    with member.call("listen", timeout_s=60) as served:
        with stranger(member) as waiting:
            assert is_rejected(waiting)
        served.send_message(word="late")
        assert served.receive_message() == {"heard": {"word": "late"}}
