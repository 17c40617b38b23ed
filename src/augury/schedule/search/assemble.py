"""Laying a line of bytes, message by message, the most urgent first."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, inf

import numpy as np

from augury.core.columns import I8
from augury.schedule.search.byte_line import Line
from augury.schedule.search.search_inputs import Floats, Terms

_SLACK_BYTES = 1e-6
"""So that a size which was computed from bytes gives those bytes again."""


class Laying:
    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        self._left_bytes = terms.size_bytes.copy()
        self._runs: list[int] = []
        self._ends: list[int] = []
        self._cuts: list[float] = []
        self._laid_bytes = 0

    def left_ns(self) -> Floats:
        return (self._left_bytes * self.terms.ns_per_byte).astype(np.float64)

    def fill_gap(self, now_ns: float, room_ns: float, most_ns: float = inf) -> None:
        """What is there ``now_ns``, as much as fits; in equal messages of at most ``most_ns``,
        whose overheads take their share of the room."""
        terms = self.terms
        there = np.flatnonzero((terms.release_ns <= now_ns) & (self._left_bytes > 0))
        there_ns = int(self._left_bytes[there].sum()) * terms.ns_per_byte
        with_overhead_ns = min(room_ns, there_ns) + terms.overhead_ns
        count = max(1, ceil(with_overhead_ns / (most_ns + terms.overhead_ns)))
        size_bytes = (with_overhead_ns / count - terms.overhead_ns) / terms.ns_per_byte
        before_bytes = self._laid_bytes
        self._lay(there, max(0.0, size_bytes * count) + _SLACK_BYTES)
        self._cuts += [before_bytes + size_bytes * nth for nth in range(1, count)]
        self._cuts.append(self._laid_bytes)

    def lay_rest(self, sizes_ns: Sequence[float]) -> None:
        """All that is left, in messages of these sizes, and one more if there still is any."""
        ends_bytes = np.cumsum(sizes_ns) / self.terms.ns_per_byte + _SLACK_BYTES
        self._cuts += (self._laid_bytes + ends_bytes).tolist()
        self._lay(np.flatnonzero(self._left_bytes), inf)

    def line(self) -> tuple[Line, I8]:
        """With its cuts."""
        runs = np.array(self._runs, np.int32)
        line = Line(runs, np.array(self._ends, np.int64), self.terms.item_bytes[runs])
        cuts = np.array([cut for cut in self._cuts if cut < self._laid_bytes], np.int64)
        return line, line.aligned(cuts)

    def _lay(self, places: I8, room_bytes: float) -> None:
        """Whole runs as long as there is room; of the next one as many items as fit."""
        lefts, items = self._left_bytes[places], self.terms.item_bytes[places]
        ends = np.cumsum(lefts)
        num_whole = int(np.searchsorted(ends, room_bytes, side="right"))
        taken = lefts[:num_whole]
        if num_whole < len(places):
            before = int(ends[num_whole - 1]) if num_whole else 0
            item = int(items[num_whole])
            part = int(room_bytes - before) // item * item
            if part > 0:
                taken = np.append(taken, part)
        self._left_bytes[places[: len(taken)]] -= taken
        self._runs += places[: len(taken)].tolist()
        self._ends += (self._laid_bytes + np.cumsum(taken)).tolist()
        self._laid_bytes += int(taken.sum())
