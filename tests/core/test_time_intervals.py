"""Unions of time intervals, for one group and for several."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from augury.core.time_intervals import GroupedIntervals, IntervalSet

TIMES = st.integers(0, 60)
INTERVALS = st.lists(st.tuples(st.integers(0, 2), TIMES, TIMES), max_size=12)


@given(INTERVALS)
def test_groups_are_covered_as_if_each_were_alone(rows: list[tuple[int, int, int]]) -> None:
    group, start, end = np.array(rows, dtype=np.int64).reshape(-1, 3).T
    together = GroupedIntervals(group, start, end, num_groups=3, until_ns=50)
    at_ns = np.array([0, 7, 20, 50])
    for number, covered in enumerate(together.until(at_ns)):
        own = [(min(a, 50), min(b, 50)) for g, a, b in rows if g == number]
        assert covered.tolist() == pytest.approx(IntervalSet(own).until(at_ns).tolist())


def test_each_group_may_ask_for_times_of_its_own() -> None:
    union = GroupedIntervals(
        np.array([0, 1]), np.array([0, 5]), np.array([10, 6]), num_groups=2, until_ns=10
    )
    assert union.until(np.array([[4], [6]])).tolist() == [[4.0], [1.0]]
