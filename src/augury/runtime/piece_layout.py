"""The layout of pieces and gradients in one flat memory.

A piece is sent without a copy, so it must be contiguous. A gradient that is cut into several pieces
can be read as a whole where its slices are adjacent. Both hold where a piece ends with a slice of a
gradient and the next piece begins with the rest of it: pieces are linked into chains by the
gradients that they share. Gradients that cannot be linked are copied together later.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise

from augury.core.enums import OpKind
from augury.core.plan.plan import FIRST_OPS, Order, Piece
from augury.core.plan.problem import Problem

ALIGNMENT_BYTES = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class PiecePart:
    """A slice of a gradient: its offset in the gradient, its size, and its address."""

    offset_bytes: int
    size_bytes: int
    at_bytes: int
    piece: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PieceLayout:
    size_bytes: int
    piece_at: dict[int, tuple[int, int]]
    """Address and padded size of each first piece."""
    parts: tuple[tuple[PiecePart, ...], ...]
    """The slices of each gradient, by offset."""

    def whole_at(self, gradient: int) -> int | None:
        """Returns the address of a gradient whose slices are adjacent; None for others."""
        parts = self.parts[gradient]
        first = parts[0].at_bytes
        return first if all(part.at_bytes - first == part.offset_bytes for part in parts) else None


@dataclass(slots=True)
class _Ends:
    """The slices that a piece must begin and end with, and the neighbouring pieces."""

    head: int | None = None
    tail: int | None = None
    before: int | None = None
    behind: int | None = None


def lay_out(problem: Problem, order: Order, num_ranks: int) -> PieceLayout:
    firsts = {n: piece for n, piece in enumerate(order.pieces) if piece.op in FIRST_OPS}
    ends = _linked(problem, firsts)
    piece_at: dict[int, tuple[int, int]] = {}
    parts: list[list[PiecePart]] = [[] for _ in problem.gradients]
    at = 0
    for start in (number for number in firsts if ends[number].before is None):
        at = -(-at // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        number: int | None = start
        while number is not None:
            piece, began = firsts[number], at
            for place in _slots(piece, ends[number]):
                part = piece.slices[place]
                parts[part.gradient].append(
                    PiecePart(
                        offset_bytes=part.offset_bytes,
                        size_bytes=part.size_bytes,
                        at_bytes=at,
                        piece=number,
                    )
                )
                at += part.size_bytes
            if piece.op is OpKind.REDUCE_SCATTER:
                unit = num_ranks * problem.gradients[piece.slices[0].gradient].item_bytes
                at = began + -(-(at - began) // unit) * unit
            piece_at[number] = began, at - began
            number = ends[number].behind
    return PieceLayout(
        size_bytes=at,
        piece_at=piece_at,
        parts=tuple(tuple(sorted(found, key=lambda part: part.offset_bytes)) for found in parts),
    )


def _linked(problem: Problem, firsts: dict[int, Piece]) -> dict[int, _Ends]:
    holders: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    for number, piece in firsts.items():
        for place, part in enumerate(piece.slices):
            holders[part.gradient].append((part.offset_bytes, number, place))
    ends = {number: _Ends() for number in firsts}
    # The largest first: their copies cost most.
    for gradient in sorted(holders, key=lambda g: -problem.gradients[g].size_bytes):
        found = sorted(holders[gradient])
        if len(found) > 1 and _can_link(found, firsts, ends):
            for (_, left, tail), (_, right, head) in pairwise(found):
                ends[left].tail, ends[left].behind = tail, right
                ends[right].head, ends[right].before = head, left
    return ends


def _can_link(
    found: list[tuple[int, int, int]], firsts: dict[int, Piece], ends: dict[int, _Ends]
) -> bool:
    numbers = [number for _, number, _ in found]
    if len({*numbers}) != len(numbers):
        return False
    if any(firsts[number].op is OpKind.REDUCE_SCATTER for number in numbers):
        return False  # its padding would separate slices
    if any(len(firsts[number].slices) > 1 for number in numbers[1:-1]):
        return False
    if any(ends[number].behind is not None for number in numbers[:-1]):
        return False
    if any(ends[number].before is not None for number in numbers[1:]):
        return False
    after: int | None = numbers[-1]
    while after is not None:  # a chain must not become a cycle
        after = ends[after].behind
        if after in numbers:
            return False
    return True


def _slots(piece: Piece, ends: _Ends) -> list[int]:
    """Returns the order of slices in their piece: those of one gradient are adjacent."""
    inside = [n for n in range(len(piece.slices)) if n not in (ends.head, ends.tail)]
    inside.sort(key=lambda n: (piece.slices[n].gradient, piece.slices[n].offset_bytes))
    head = [] if ends.head is None else [ends.head]
    tail = [] if ends.tail is None or ends.tail == ends.head else [ends.tail]
    return [*head, *inside, *tail]
