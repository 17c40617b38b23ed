"""Rank 0's port beside callers that do not know the secret: they keep no rank waiting."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from augury.capture.rendezvous.framed_socket import FramedSocket
from augury.capture.rendezvous.rendezvous import Host, Meeting

SECRET = bytes(range(32))


@pytest.fixture(scope="module")
def meeting() -> Iterator[Meeting]:
    """As a rank has it; rank 0's side answers in threads of this process."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        host = Host(listener, SECRET, 1)
        host.offer("greet", lambda call, rank: call.send_message(greeted=rank))
        host.offer("listen", lambda call, _: call.send_message(heard=call.receive_message()))
        host.start()
        address = listener.getsockname()
        yield Meeting(rank=1, world_size=2, pid=0, host=None, address=address, secret=SECRET)


def greeted(meeting: Meeting) -> object:
    with meeting.call("greet") as call:
        return call.receive_message()["greeted"]


def stranger(meeting: Meeting, said: bytes = b"") -> socket.socket:
    connection = socket.create_connection(meeting.address, timeout=60)
    connection.sendall(said)
    return connection


def is_shown_out(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


@pytest.mark.parametrize("said", [b"", SECRET[:31]], ids=["nothing", "a part"])
def test_callers_that_say_nothing_keep_no_rank_waiting(meeting: Meeting, said: bytes):
    with ExitStack() as connections:
        strangers = [connections.enter_context(stranger(meeting, said)) for _ in range(100)]
        assert greeted(meeting) == 1
        assert all(is_shown_out(connection) for connection in strangers)
        assert greeted(meeting) == 1


def test_a_wrong_secret_is_not_answered(meeting: Meeting):
    for wrong in (SECRET[::-1], bytes(32), SECRET[:31] + b"?"):
        with stranger(meeting, wrong + b"?" * 100) as connection:
            assert is_shown_out(connection)
    assert greeted(meeting) == 1


def test_the_secret_may_come_in_parts(meeting: Meeting):
    with FramedSocket(stranger(meeting, SECRET[:5]), timeout_s=60) as call:
        call.send(SECRET[5:])
        call.send_message(service="greet", rank=7)
        assert call.receive_message() == {"ready": True}
        assert call.receive_message() == {"greeted": 7}


def test_callers_are_shown_out_while_a_rank_is_served(meeting: Meeting):
    with meeting.call("listen", timeout_s=60) as served:
        with stranger(meeting) as waiting:
            assert is_shown_out(waiting)
        served.send_message(word="late")
        assert served.receive_message() == {"heard": {"word": "late"}}
