"""Collectives around a ring, in which every rank sends to the next one only."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from augury.build.collectives.chunks import even_chunks
from augury.build.collectives.scheme import CollectiveCall
from augury.build.collectives.transfer import Move, NetworkPath
from augury.costs.collective_steps import TREE_CHUNKS, ring_rounds


def all_reduce(call: CollectiveCall) -> list[int]:
    wire, chunks = call.wire(), even_chunks(call.size_bytes, len(call.ports))
    return _gather(wire, chunks, _scatter(wire, chunks, call.after))


def reduce_scatter(call: CollectiveCall) -> list[int]:
    """Leaves the sum of chunk i on the member at position i."""
    return _scatter(call.wire(), even_chunks(call.size_bytes, len(call.ports)), call.after)


def all_gather(call: CollectiveCall) -> list[int]:
    return _gather(call.wire(), even_chunks(call.size_bytes, len(call.ports)), call.after)


def broadcast(call: CollectiveCall, *, root: int = 0) -> list[int]:
    """Sends chunks one after another from neighbour to neighbour."""
    wire, ports = call.wire(), call.ports
    have = list(call.after)
    order = [(root + i) % len(ports) for i in range(len(ports))]
    for number, chunk_bytes in enumerate(even_chunks(call.size_bytes, TREE_CHUNKS)):
        for src, dst in pairwise(order):
            move = Move(ports[src], ports[dst], chunk_bytes, (have[src],), (have[dst],))
            (have[dst],) = wire.move([move], f"chunk{number}")
    return have


def _scatter(wire: NetworkPath, chunks: Sequence[int], after: Sequence[int]) -> list[int]:
    return _travel(wire, chunks, after, lead=-1, stage="scatter", reduces=True)


def _gather(wire: NetworkPath, chunks: Sequence[int], after: Sequence[int]) -> list[int]:
    return _travel(wire, chunks, after, lead=0, stage="gather", reduces=False)


def _travel(
    wire: NetworkPath,
    chunks: Sequence[int],
    after: Sequence[int],
    *,
    lead: int,
    stage: str,
    reduces: bool,
) -> list[int]:
    """Sends every chunk once around; the member at position i begins with chunk i + ``lead``. A
    rank receives its messages in order, so that the last one implies all of them and its own
    contribution."""
    ports = wire.ports
    have = list(after)
    for turn, hops in enumerate(ring_rounds(len(ports), lead=lead)):
        moves = []
        for src, dst, chunk in hops:
            chunk_bytes = chunks[chunk]
            receive_ns = ports.reduce_ns(chunk_bytes) if reduces else 0
            moves.append(
                Move(ports[src], ports[dst], chunk_bytes, (have[src],), (have[dst],), receive_ns)
            )
        arrived = wire.move(moves, f"{stage}{turn}")
        have = arrived[-1:] + arrived[:-1]
    return have
