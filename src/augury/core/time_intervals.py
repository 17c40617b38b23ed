"""Sets of time intervals."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from augury.core.columns import I8

Interval = tuple[int, int]


class IntervalSet:
    """A union of intervals; measures its overlap with other intervals."""

    def __init__(self, intervals: Iterable[Interval] | I8) -> None:
        """Takes pairs of start and end, or an array with two columns."""
        if not isinstance(intervals, np.ndarray):
            intervals = np.array([*intervals], dtype=np.int64).reshape(-1, 2)
        begins, ends = _union(intervals[:, 0], intervals[:, 1])
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


class GroupedIntervals:
    """A union of intervals for each of several groups, such as ranks. Groups lie on one line, one
    after the other, so that one union serves them all. Times are cut to 0 ...
    ``until_ns``."""

    def __init__(
        self,
        group: NDArray[np.integer],
        start_ns: I8,
        end_ns: I8,
        *,
        num_groups: int,
        until_ns: int,
    ) -> None:
        self._shift = np.arange(num_groups, dtype=np.int64)[:, None] * (until_ns + 1)
        times = np.clip(np.stack([start_ns, end_ns], axis=1), 0, until_ns)
        self._union = IntervalSet(times + self._shift[group])

    def until(self, at_ns: NDArray[np.int64]) -> NDArray[np.float64]:
        """Returns the time that each group covers before each of ``at_ns``, which has a row per
        group, or one row for all."""
        times = np.broadcast_to(at_ns, (len(self._shift), np.shape(at_ns)[-1])) + self._shift
        before = self._union.until(self._shift.ravel())
        return self._union.until(times.ravel()).reshape(times.shape) - before[:, None]


def _union(start_ns: I8, end_ns: I8) -> tuple[I8, I8]:
    kept = np.flatnonzero(end_ns > start_ns)
    kept = kept[np.argsort(start_ns[kept], kind="stable")]
    start_ns, reach = start_ns[kept], np.maximum.accumulate(end_ns[kept])
    if not len(kept):
        return start_ns, reach
    new = np.concatenate([[True], start_ns[1:] > reach[:-1]])
    last = np.concatenate([np.flatnonzero(new)[1:] - 1, [len(kept) - 1]])
    return start_ns[new], reach[last]
