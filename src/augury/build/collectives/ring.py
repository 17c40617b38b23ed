"""Collectives around a ring: every rank talks to its neighbours only."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from augury.build.collectives.chunks import even_chunks
from augury.build.collectives.scheme import CollectiveCall
from augury.build.collectives.transfer import Move, NetworkPath
from augury.costs.closed_forms import TREE_CHUNKS


def all_reduce(call: CollectiveCall) -> list[int]:
    wire, chunks = call.wire(), even_chunks(call.size_bytes, len(call.ports))
    return _gather(wire, chunks, _scatter(wire, chunks, call.after))


def reduce_scatter(call: CollectiveCall) -> list[int]:
    """The member at position i ends up with the sum of chunk i."""
    return _scatter(call.wire(), even_chunks(call.size_bytes, len(call.ports)), call.after)


def all_gather(call: CollectiveCall) -> list[int]:
    return _gather(call.wire(), even_chunks(call.size_bytes, len(call.ports)), call.after)


def broadcast(call: CollectiveCall, *, root: int = 0) -> list[int]:
    """From neighbour to neighbour, chunk behind chunk."""
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
    """Every chunk goes once around, in as many steps as there are neighbours to pass; the
    member at position i begins with chunk i + ``lead``. A rank takes its messages in order, so
    that its last one stands for all of them and for its own contribution."""
    ports, size = wire.ports, len(wire.ports)
    have = list(after)
    for turn in range(size - 1):
        moves = []
        for i in range(size):
            to = (i + 1) % size
            chunk_bytes = chunks[(i + lead - turn) % size]
            receive_ns = ports.reduce_ns(chunk_bytes) if reduces else 0
            moves.append(
                Move(ports[i], ports[to], chunk_bytes, (have[i],), (have[to],), receive_ns)
            )
        arrived = wire.move(moves, f"{stage}{turn}")
        have = arrived[-1:] + arrived[:-1]
    return have
