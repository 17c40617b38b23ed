"""Placement of tensor partitions on parameter servers."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from augury.build.collectives.chunks import capped_chunks


class Placement(StrEnum):
    """Rule that assigns a partition to a server."""

    BALANCED = "balanced"
    """The server with the fewest bytes so far."""
    ROUND_ROBIN = "round-robin"


def place(
    sizes_bytes: Sequence[int],
    *,
    num_servers: int,
    partition_bytes: int,
    placement: Placement = Placement.BALANCED,
) -> list[list[int]]:
    """Returns the server of each partition, by tensor."""
    load_bytes = [0] * num_servers
    homes: list[list[int]] = []
    turn = 0
    for size_bytes in sizes_bytes:
        home = []
        for part_bytes in capped_chunks(size_bytes, partition_bytes):
            server = turn % num_servers
            if placement is Placement.BALANCED:
                server = load_bytes.index(min(load_bytes))
            load_bytes[server] += part_bytes
            turn += 1
            home.append(server)
        homes.append(home)
    return homes
