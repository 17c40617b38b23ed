"""All-to-all in rounds of pairs, so that no port has two messages at a time."""

from __future__ import annotations

from augury.build.collectives.chunks import even_chunks
from augury.build.collectives.scheme import CollectiveCall
from augury.build.collectives.transfer import Move


def all_to_all(call: CollectiveCall) -> list[int]:
    wire, ports, after = call.wire(), call.ports, call.after
    size = len(ports)
    chunks = even_chunks(call.size_bytes, size)
    have = list(after)
    for distance in range(1, size):
        targets = [(i + distance) % size for i in range(size)]
        moves = [
            Move(ports[i], ports[to], chunks[to], (after[i],), (have[to],))
            for i, to in enumerate(targets)
        ]
        arrived = wire.move(moves, f"distance{distance}")
        for to, arrival in zip(targets, arrived, strict=True):
            have[to] = arrival
    return have
