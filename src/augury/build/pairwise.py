"""All-to-all: every rank sends every other its piece, in an order that never crowds anybody."""

from __future__ import annotations

from collections.abc import Sequence

from augury.build.chunks import even_chunks
from augury.build.ports import Ports
from augury.build.transfer import Move, Wire
from augury.core.builder import GraphBuilder


def all_to_all(
    builder: GraphBuilder,
    ports: Ports,
    *,
    size_bytes: int,
    after: Sequence[int],
    name: str,
    step: int = 0,
    priority: int = 0,
) -> list[int]:
    wire = Wire(builder=builder, ports=ports, name=name, step=step, priority=priority)
    size = len(ports)
    chunks = even_chunks(size_bytes, size)
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
