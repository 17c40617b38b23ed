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
        # Very long times are counted in larger units, so that all groups fit on the line.
        self._unit_ns = 1 + ((until_ns + 1) * num_groups >> 61)
        length = until_ns // self._unit_ns + 1
        self._shift = np.arange(num_groups, dtype=np.int64)[:, None] * length
        times = np.clip(np.stack([start_ns, end_ns], axis=1), 0, until_ns) // self._unit_ns
        self._union = IntervalSet(times + self._shift[group])

    def until(self, at_ns: NDArray[np.int64]) -> NDArray[np.float64]:
        """Returns the time that each group covers before each of ``at_ns``, which has a row per
        group, or one row for all."""
        shape = (len(self._shift), np.shape(at_ns)[-1])
        times = np.broadcast_to(at_ns, shape) // self._unit_ns + self._shift
        covered = self._union.until(np.concatenate([self._shift, times], axis=1).ravel())
        covered = covered.reshape(len(self._shift), -1)
        return (covered[:, 1:] - covered[:, :1]) * self._unit_ns


def _union(start_ns: I8, end_ns: I8) -> tuple[I8, I8]:
    kept = np.flatnonzero(end_ns > start_ns)
    kept = kept[np.argsort(start_ns[kept], kind="stable")]
    start_ns, reach = start_ns[kept], np.maximum.accumulate(end_ns[kept])
    if not len(kept):
        return start_ns, reach
    new = np.concatenate([[True], start_ns[1:] > reach[:-1]])
    last = np.concatenate([np.flatnonzero(new)[1:] - 1, [len(kept) - 1]])
    return start_ns[new], reach[last]
