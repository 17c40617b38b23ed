"""The executable spec of an Order: what must hold before anybody follows it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from augury.core.enums import OpKind
from augury.core.errors import InputError
from augury.core.graph.graph import NONE
from augury.core.plan.plan import FIRST_OPS, LAST_OPS, PIECE_OPS, Order, Piece
from augury.core.plan.problem import Problem, Scheme

COMPLETES = {OpKind.PULL: OpKind.PUSH, OpKind.ALL_GATHER: OpKind.REDUCE_SCATTER}
MAX_PIECES = 1 << 20
MAX_LANES = 16


def verify_order(order: Order, problem: Problem) -> None:
    """Raises InputError with the first thing that is wrong."""
    for wrong in wrong_with(order, problem):
        raise InputError(f"no order of pieces: {wrong}", remedy="make the plan anew")


def wrong_with(order: Order, problem: Problem) -> Iterator[str]:
    if len(order.pieces) > MAX_PIECES:
        yield f"it has {len(order.pieces)} pieces"
        return
    if order.window_bytes is not None and order.window_bytes < 1:
        yield f"its window is {order.window_bytes} bytes"
    if not 1 <= order.lanes <= MAX_LANES:
        yield f"{order.lanes} of its pieces are under way at once"
    for place, piece in enumerate(order.pieces):
        yield from _of_piece(place, piece, order, problem)
    for ops in (FIRST_OPS, LAST_OPS):
        yield from _of_cover(order, problem, ops)


def _of_piece(place: int, piece: Piece, order: Order, problem: Problem) -> Iterator[str]:
    who = f"piece {place}"
    if piece.op not in PIECE_OPS:
        yield f"{who} is of kind {piece.op}"
        return
    serves = piece.op in (OpKind.PUSH, OpKind.PULL)
    if serves != (problem.network.scheme is Scheme.PARAMETER_SERVER):
        yield f"{who} is a {piece.op.label} where gradients go by {problem.network.scheme}"
    if piece.not_before_ns < 0:
        yield f"{who} is not to leave before {piece.not_before_ns} ns"
    if not piece.slices:
        yield f"{who} is empty"
    for part in piece.slices:
        if not 0 <= part.gradient < len(problem.gradients):
            yield f"{who} has a slice of gradient {part.gradient}, which there is not"
            continue
        gradient = problem.gradients[part.gradient]
        if part.size_bytes < 1 or part.size_bytes % gradient.item_bytes:
            yield f"{who} has {part.size_bytes} bytes of {gradient.name!r}"
    wanted = COMPLETES.get(piece.op)
    if wanted is None:
        if piece.after != NONE:
            yield f"{who} completes another one, being a {piece.op.label}"
    elif not 0 <= piece.after < place:
        yield f"{who} completes piece {piece.after}, which does not come before it"
    elif order.pieces[piece.after].op is not wanted or (
        order.pieces[piece.after].slices != piece.slices
    ):
        yield f"{who} is not the second half of piece {piece.after}"


def _of_cover(order: Order, problem: Problem, ops: tuple[OpKind, ...]) -> Iterator[str]:
    """Every byte once: slices, laid in order, tile each gradient."""
    found: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for piece in order.pieces:
        if piece.op in ops:
            for part in piece.slices:
                found[part.gradient].append((part.offset_bytes, part.size_bytes))
    for number, gradient in enumerate(problem.gradients):
        reach = 0
        for offset_bytes, size_bytes in sorted(found[number]):
            if offset_bytes != reach:
                break
            reach += size_bytes
        if reach != gradient.size_bytes or len(found[number]) == 0:
            yield f"byte {reach} of {gradient.name!r} is not sent exactly once"
