"""Random valid orders of pieces, good and bad."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import strategies as st

from augury.core.enums import OpKind
from augury.core.plan.plan import Order, Piece, Slice
from augury.core.plan.plan_spec import verify_order
from augury.core.plan.problem import Problem, Scheme


@st.composite
def orders(draw: st.DrawFn, problem: Problem) -> Order:
    """Slices of random sizes in random order, random runs of them as messages; all-reduces whole
    or as two halves; second halves anywhere behind the first."""
    messages = _runs(draw, draw(st.permutations(_slices(draw, problem))))
    is_served = problem.network.scheme is Scheme.PARAMETER_SERVER
    pieces: list[Piece] = []
    open_pieces: list[int] = []
    for message in messages:
        while open_pieces and draw(st.booleans()):
            _complete(pieces, open_pieces, draw)
        if is_served:
            op = OpKind.PUSH
        else:
            op = draw(st.sampled_from((OpKind.ALL_REDUCE, OpKind.REDUCE_SCATTER)))
        if op is not OpKind.ALL_REDUCE:
            open_pieces.append(len(pieces))
        pieces.append(Piece(op=op, slices=message, not_before_ns=draw(_MARKS_NS)))
    while open_pieces:
        _complete(pieces, open_pieces, draw)
    order = Order(
        policy="random",
        pieces=tuple(pieces),
        has_barrier=draw(st.booleans()),
        window_bytes=draw(st.none() | st.integers(1, 2 * problem.size_bytes)),
    )
    verify_order(order, problem)
    return order


_MARKS_NS = st.just(0) | st.integers(0, 200)
_SECOND_HALVES = {OpKind.PUSH: OpKind.PULL, OpKind.REDUCE_SCATTER: OpKind.ALL_GATHER}


def _slices(draw: st.DrawFn, problem: Problem) -> list[Slice]:
    slices = []
    for place, gradient in enumerate(problem.gradients):
        num_items = gradient.size_bytes // gradient.item_bytes
        cuts = draw(st.sets(st.integers(1, max(1, num_items - 1)), max_size=3))
        edges = [0, *sorted(cut for cut in cuts if cut < num_items), num_items]
        slices += [
            Slice(
                gradient=place,
                offset_bytes=begin * gradient.item_bytes,
                size_bytes=(end - begin) * gradient.item_bytes,
            )
            for begin, end in pairwise(edges)
        ]
    return slices


def _runs(draw: st.DrawFn, slices: list[Slice]) -> list[tuple[Slice, ...]]:
    messages: list[list[Slice]] = [[]]
    for part in slices:
        if messages[-1] and draw(st.booleans()):
            messages.append([])
        messages[-1].append(part)
    return [tuple(message) for message in messages]


def _complete(pieces: list[Piece], open_pieces: list[int], draw: st.DrawFn) -> None:
    place = open_pieces.pop(draw(st.integers(0, len(open_pieces) - 1)))
    first = pieces[place]
    pieces.append(
        Piece(
            op=_SECOND_HALVES[first.op],
            slices=first.slices,
            after=place,
            not_before_ns=draw(_MARKS_NS),
        )
    )
