"""Collectives up and down a binary tree, chunk behind chunk."""

from __future__ import annotations

from collections.abc import Sequence

from augury.build.chunks import even_chunks
from augury.build.ports import Ports
from augury.build.transfer import Move, Wire
from augury.core.builder import GraphBuilder
from augury.costs.network import TREE_CHUNKS


def all_reduce(
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
    tree = _Tree(wire, after, root=0)
    for number, chunk_bytes in enumerate(even_chunks(size_bytes, TREE_CHUNKS)):
        tree.up(chunk_bytes, f"up{number}")
        tree.down(chunk_bytes, f"down{number}")
    return tree.done()


def reduce(
    builder: GraphBuilder,
    ports: Ports,
    *,
    size_bytes: int,
    after: Sequence[int],
    name: str,
    step: int = 0,
    priority: int = 0,
    root: int = 0,
) -> list[int]:
    """Only the root's answer stands for the result; the others' say nothing new."""
    wire = Wire(builder=builder, ports=ports, name=name, step=step, priority=priority)
    tree = _Tree(wire, after, root=root)
    for number, chunk_bytes in enumerate(even_chunks(size_bytes, TREE_CHUNKS)):
        tree.up(chunk_bytes, f"up{number}")
    return tree.done()


def broadcast(
    builder: GraphBuilder,
    ports: Ports,
    *,
    size_bytes: int,
    after: Sequence[int],
    name: str,
    step: int = 0,
    priority: int = 0,
    root: int = 0,
) -> list[int]:
    wire = Wire(builder=builder, ports=ports, name=name, step=step, priority=priority)
    tree = _Tree(wire, after, root=root)
    for number, chunk_bytes in enumerate(even_chunks(size_bytes, TREE_CHUNKS)):
        tree.down(chunk_bytes, f"down{number}")
    return tree.done()


class _Tree:
    """A complete binary tree over the members, numbered from the root as in a heap. A node
    takes each neighbour's chunks in order, so that the last one stands for all."""

    def __init__(self, wire: Wire, after: Sequence[int], *, root: int) -> None:
        self.wire = wire
        self.size = len(after)
        self.root = root
        self.own = [after[self.position(node)] for node in range(self.size)]
        self.from_above: dict[int, int] = {}
        self.from_below: dict[int, int] = {}
        """The last arrival at the parent, by child."""

    def position(self, node: int) -> int:
        return (self.root + node) % self.size

    def up(self, chunk_bytes: int, stage: str) -> None:
        ports = self.wire.ports
        receive_ns = ports.reduce_ns(chunk_bytes)
        for level in reversed(self.levels()):
            moves = []
            for child in level:
                parent = (child - 1) // 2
                moves.append(
                    Move(
                        ports[self.position(child)],
                        ports[self.position(parent)],
                        chunk_bytes,
                        self.reduced(child),
                        (self.from_below.get(child, self.own[parent]),),
                        receive_ns,
                    )
                )
            arrived = self.wire.move(moves, stage)
            self.from_below.update(zip(level, arrived, strict=True))

    def down(self, chunk_bytes: int, stage: str) -> None:
        ports = self.wire.ports
        for level in self.levels():
            moves = []
            for child in level:
                parent = (child - 1) // 2
                has = (self.from_above[parent],) if parent else self.reduced(0)
                moves.append(
                    Move(
                        ports[self.position(parent)],
                        ports[self.position(child)],
                        chunk_bytes,
                        has,
                        (self.from_above.get(child, self.own[child]),),
                    )
                )
            arrived = self.wire.move(moves, stage)
            self.from_above.update(zip(level, arrived, strict=True))

    def reduced(self, node: int) -> tuple[int, ...]:
        """What the node's sum of the latest chunk waits for."""
        below = [self.from_below[c] for c in (2 * node + 1, 2 * node + 2) if c in self.from_below]
        return tuple(below) or (self.own[node],)

    def levels(self) -> list[range]:
        """Nodes below the root, level by level."""
        starts = [(1 << depth) - 1 for depth in range(1, self.size.bit_length())]
        return [range(start, min(2 * start + 1, self.size)) for start in starts]

    def done(self) -> list[int]:
        have = [0] * self.size
        for node in range(self.size):
            port = self.wire.ports[self.position(node)]
            ops = (self.from_above[node],) if node in self.from_above else self.reduced(node)
            have[self.position(node)] = self.wire.join(port, ops)
        return have
