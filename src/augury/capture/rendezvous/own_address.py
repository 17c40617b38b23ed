"""The address of this machine by which the other ranks reach it."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from ipaddress import ip_address

_ANYWHERE = "192.0.2.1"
"""Reserved for documents: asking for the way there sends nothing."""


def listen(*, backlog: int) -> socket.socket:
    """On that one address only, on a port that is free."""
    trouble = OSError("this machine has no address that other ranks reach")
    for address in _candidates():
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        try:
            return socket.create_server((address, 0), family=family, backlog=backlog)
        except OSError as error:
            trouble = error
    raise trouble


def _candidates() -> Iterator[str]:
    """The address of the rendezvous comes first: all ranks have reached it, and mostly it is
    rank 0's. A machine's name often means its loopback to itself, which serves no other host."""
    is_alone = _is_one_host()
    master = os.environ.get("MASTER_ADDR", "localhost")
    for address in (*_resolved(master), *_way_to(master), *_resolved(socket.gethostname())):
        if is_alone or not ip_address(address.partition("%")[0]).is_loopback:
            yield address
    yield from _way_to(_ANYWHERE)


def _is_one_host() -> bool:
    """As far as launchers tell; where they tell nothing, the rendezvous has to be right."""
    world_size = os.environ.get("WORLD_SIZE")
    return world_size is None or os.environ.get("LOCAL_WORLD_SIZE", world_size) == world_size


def _resolved(name: str) -> list[str]:
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError:
        return []
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def _way_to(name: str) -> list[str]:
    """The address that this machine would send from."""
    for target in _resolved(name):
        family = socket.AF_INET6 if ":" in target else socket.AF_INET
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect((target, 9))
                return [str(probe.getsockname()[0])]
        except OSError:
            continue
    return []
