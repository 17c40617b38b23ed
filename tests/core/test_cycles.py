from __future__ import annotations

import sys
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from augury.core.graph.cycles import _unsorted_remainder, find_cycle
from augury.core.graph.graph import Edges


def _edges(num_ops: int, *pairs: tuple[int, int]) -> Edges:
    src, dst = np.array(pairs, dtype=np.int32).reshape(-1, 2).T
    return Edges.from_pairs(src, dst, num_ops=num_ops)


_pairs = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=20)


@pytest.fixture(params=["native", "python"])
def without_native(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once with the kernel, once as where there was no compiler."""
    if request.param == "python":
        monkeypatch.setitem(sys.modules, "augury._native", None)


@pytest.mark.usefixtures("without_native")
class TestBothWays:
    def test_ids_in_order_have_no_cycle(self):
        assert find_cycle(_edges(3, (0, 1), (1, 2), (0, 2))) == []

    def test_no_edges_no_cycle(self):
        assert find_cycle(_edges(3)) == []

    def test_ids_out_of_order_without_a_cycle(self):
        assert find_cycle(_edges(4, (3, 1), (1, 0), (2, 0))) == []

    def test_a_cycle_is_told_in_the_order_of_its_edges(self):
        cycle = find_cycle(_edges(5, (0, 1), (1, 3), (3, 2), (2, 1), (3, 4)))
        turned = cycle.index(1)
        assert cycle[turned:] + cycle[:turned] == [1, 3, 2]

    def test_what_waits_behind_a_cycle_is_not_part_of_it(self):
        cycle = find_cycle(_edges(4, (2, 0), (2, 1), (1, 2), (0, 3)))
        assert sorted(cycle) == [1, 2]


def _remainder_by_native(edges: Edges) -> list[int]:
    from augury._native import unsorted_remainder

    return sorted(unsorted_remainder(edges.first, edges.dst).tolist())


@given(_pairs)
def test_kernel_and_python_leave_the_same_operations(pairs: list[tuple[int, int]]):
    edges = _edges(10, *pairs)
    assert _remainder_by_native(edges) == sorted(_unsorted_remainder(edges).tolist())


@given(_pairs)
def test_a_cycle_is_found_exactly_when_there_is_one(pairs: list[tuple[int, int]]):
    edges = _edges(10, *pairs)
    cycle = find_cycle(edges)
    assert bool(cycle) == bool(len(_unsorted_remainder(edges)))
    if cycle:
        assert len(set(cycle)) == len(cycle)
        assert {*pairwise([*cycle, cycle[0]])} <= set(pairs)
