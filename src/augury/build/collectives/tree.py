"""Collectives up and down a binary tree, in chunks that follow each other."""

from __future__ import annotations

from augury.build.collectives.chunks import even_chunks
from augury.build.collectives.scheme import CollectiveCall
from augury.build.collectives.transfer import Move
from augury.costs.collective_steps import (
    TREE_CHUNKS,
    tree_children,
    tree_levels,
    tree_parent,
)


def all_reduce(call: CollectiveCall) -> list[int]:
    return _Tree(call, root=0).travel(goes_up=True, goes_down=True)


def reduce(call: CollectiveCall, *, root: int = 0) -> list[int]:
    """Only the operation returned for the root marks the result."""
    return _Tree(call, root=root).travel(goes_up=True)


def broadcast(call: CollectiveCall, *, root: int = 0) -> list[int]:
    return _Tree(call, root=root).travel(goes_down=True)


class _Tree:
    """A complete binary tree over the members, numbered from the root as in a heap. A node
    receives each neighbour's chunks in order, so that the last one implies all."""

    def __init__(self, call: CollectiveCall, *, root: int) -> None:
        self.wire = call.wire()
        self.size_bytes = call.size_bytes
        self.size = len(call.after)
        self.root = root
        self.own = [call.after[self.position(node)] for node in range(self.size)]
        self.from_above: dict[int, int] = {}
        self.from_below: dict[int, int] = {}
        """Last arrival at the parent, by child."""

    def travel(self, *, goes_up: bool = False, goes_down: bool = False) -> list[int]:
        for number, chunk_bytes in enumerate(even_chunks(self.size_bytes, TREE_CHUNKS)):
            if goes_up:
                self.up(chunk_bytes, f"up{number}")
            if goes_down:
                self.down(chunk_bytes, f"down{number}")
        return self.done()

    def position(self, node: int) -> int:
        return (self.root + node) % self.size

    def up(self, chunk_bytes: int, stage: str) -> None:
        ports = self.wire.ports
        receive_ns = ports.reduce_ns(chunk_bytes)
        for level in reversed(tree_levels(self.size)):
            moves = []
            for child in level:
                parent = tree_parent(child)
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
        for level in tree_levels(self.size):
            moves = []
            for child in level:
                parent = tree_parent(child)
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
        """Returns the operations that the node's sum of the latest chunk waits for."""
        below = [self.from_below[c] for c in tree_children(node) if c in self.from_below]
        return tuple(below) or (self.own[node],)

    def done(self) -> list[int]:
        have = [0] * self.size
        for node in range(self.size):
            port = self.wire.ports[self.position(node)]
            ops = (self.from_above[node],) if node in self.from_above else self.reduced(node)
            have[self.position(node)] = self.wire.join(port, ops)
        return have
