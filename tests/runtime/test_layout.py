"""Every slice has a place of its own; pieces are contiguous, and so are most gradients."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from augury.core.enums import OpKind
from augury.core.plan.plan import Order, Piece, Slice
from augury.core.plan.problem import Gradient, Network, Problem
from augury.runtime.piece_layout import lay_out


def _problem(num_items: list[int], item_bytes: int) -> Problem:
    return Problem(
        gradients=tuple(
            Gradient(
                name=str(n),
                size_bytes=item_bytes * size,
                item_bytes=item_bytes,
                release_ns=0,
                need_ns=0,
            )
            for n, size in enumerate(num_items)
        ),
        backward_ns=0,
        forward_ns=0,
        network=Network(ns_per_byte=1.0),
    )


@st.composite
def orders(draw: st.DrawFn) -> tuple[Problem, Order, int]:
    item_bytes = draw(st.sampled_from([2, 4, 8]))
    problem = _problem(draw(st.lists(st.integers(1, 40), min_size=1, max_size=6)), item_bytes)
    slices = []
    for number, gradient in enumerate(problem.gradients):
        num_items = gradient.size_bytes // item_bytes
        cuts = sorted(draw(st.sets(st.integers(1, num_items), max_size=4)) | {0, num_items})
        for first, last in pairwise(cuts):
            slices.append(
                Slice(
                    gradient=number,
                    offset_bytes=item_bytes * first,
                    size_bytes=item_bytes * (last - first),
                )
            )
    slices = draw(st.permutations(slices))
    op = draw(st.sampled_from([OpKind.ALL_REDUCE, OpKind.REDUCE_SCATTER]))
    pieces = []
    while slices:
        size = draw(st.integers(1, len(slices)))
        pieces.append(Piece(op=op, slices=tuple(slices[:size])))
        slices = slices[size:]
    order = Order(policy="x", pieces=tuple(pieces), has_barrier=False)
    return problem, order, draw(st.integers(1, 5))


@given(orders())
def test_slices_do_not_overlap_and_pieces_are_contiguous(case: tuple[Problem, Order, int]) -> None:
    problem, order, num_ranks = case
    layout = lay_out(problem, order, num_ranks)
    owner = [-1] * layout.size_bytes
    for number, parts in enumerate(layout.parts):
        assert sum(part.size_bytes for part in parts) == problem.gradients[number].size_bytes
        for part in parts:
            at, size_bytes = layout.piece_at[part.piece]
            assert at <= part.at_bytes
            assert part.at_bytes + part.size_bytes <= at + size_bytes
            place = slice(part.at_bytes, part.at_bytes + part.size_bytes)
            assert set(owner[place]) == {-1}
            owner[place] = [part.piece] * part.size_bytes
            assert part.at_bytes % problem.gradients[number].item_bytes == 0
    for number, (at, size_bytes) in layout.piece_at.items():
        assert set(owner[at : at + size_bytes]) <= {number, -1}
        used = order.pieces[number].size_bytes
        if order.pieces[number].op is OpKind.ALL_REDUCE:
            assert size_bytes == used
        else:
            assert size_bytes % num_ranks == 0
            assert size_bytes - used < num_ranks * 8


def test_a_gradient_in_its_own_pieces_is_contiguous() -> None:
    problem = _problem([10, 6, 4], 4)
    order = Order(
        policy="x",
        pieces=tuple(
            Piece(
                op=OpKind.ALL_REDUCE,
                slices=tuple(Slice(gradient=g, offset_bytes=o, size_bytes=s) for g, o, s in one),
            )
            for one in (
                [(0, 20, 20)],
                [(2, 0, 16), (1, 8, 16)],
                [(0, 0, 8)],
                [(0, 8, 12), (1, 0, 8)],
            )
        ),
        has_barrier=False,
    )
    layout = lay_out(problem, order, 2)
    # The largest is linked; the second would have to lie on both sides of its piece's end.
    assert [layout.whole_at(number) is not None for number in range(3)] == [False, True, True]
