"""Sets of time intervals."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from augury.core.columns import I8

Interval = tuple[int, int]


class IntervalSet:
    """A union of intervals; measures its overlap with other intervals."""

    def __init__(self, intervals: Iterable[Interval]) -> None:
        begins, ends = _union(intervals)
        self._times = np.column_stack([begins, ends]).ravel()
        inside = np.concatenate([[0], np.cumsum(ends - begins)])
        self._spent = np.repeat(inside, 2)[1:-1] if len(begins) else inside[:0]

    def until(self, at_ns: NDArray[np.int64]) -> NDArray[np.float64]:
        """Returns the covered time before each of ``at_ns``."""
        if not len(self._times):
            return np.zeros(len(at_ns))
        return np.asarray(np.interp(at_ns, self._times, self._spent))

    def within(self, start_ns: I8, end_ns: I8) -> NDArray[np.float64]:
        """Returns the covered time within each interval."""
        return self.until(end_ns) - self.until(start_ns)


def _union(intervals: Iterable[Interval]) -> tuple[I8, I8]:
    table = np.array(sorted(i for i in intervals if i[1] > i[0]), dtype=np.int64).reshape(-1, 2)
    if not len(table):
        return table[:, 0], table[:, 1]
    reach = np.maximum.accumulate(table[:, 1])
    new = np.concatenate([[True], table[1:, 0] > reach[:-1]])
    last = np.concatenate([np.flatnonzero(new)[1:] - 1, [len(table) - 1]])
    return table[new, 0], reach[last]
