"""Collectives up and down a binary tree, chunk behind chunk."""

from __future__ import annotations

from augury.build.collectives.chunks import even_chunks
from augury.build.collectives.scheme import CollectiveCall
from augury.build.collectives.transfer import Move
from augury.costs.closed_forms import TREE_CHUNKS


def all_reduce(call: CollectiveCall) -> list[int]:
    return _Tree(call, root=0).travel(goes_up=True, goes_down=True)


def reduce(call: CollectiveCall, *, root: int = 0) -> list[int]:
    """Only the root's answer stands for the result; the others' say nothing new."""
    return _Tree(call, root=root).travel(goes_up=True)


def broadcast(call: CollectiveCall, *, root: int = 0) -> list[int]:
    return _Tree(call, root=root).travel(goes_down=True)


class _Tree:
    """A complete binary tree over the members, numbered from the root as in a heap. A node
    takes each neighbour's chunks in order, so that the last one stands for all."""

    def __init__(self, call: CollectiveCall, *, root: int) -> None:
        self.wire = call.wire()
        self.size_bytes = call.size_bytes
        self.size = len(call.after)
        self.root = root
        self.own = [call.after[self.position(node)] for node in range(self.size)]
        self.from_above: dict[int, int] = {}
        self.from_below: dict[int, int] = {}
        """The last arrival at the parent, by child."""

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
