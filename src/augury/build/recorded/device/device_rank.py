"""Columns of one rank that ran on devices: its threads, streams and the kernels that ended last."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from augury.core.columns import I4, I8
from augury.core.enums import StreamKind
from augury.core.trace.trace import Trace

DEVICE_STREAMS = (StreamKind.DEVICE, StreamKind.COMMUNICATION)


@dataclass(frozen=True, kw_only=True)
class DeviceRank:
    """The events of one rank within the steps of the graph."""

    trace: Trace
    rank: int
    row: int
    """Row of the rank in the graph."""
    step: I4
    """Its recorded steps, rising."""
    step_start_ns: I8
    step_end_ns: I8
    threads: list[I8]
    """Rows of the events of each thread, by start."""
    streams: list[I8]
    """Rows of the events of each stream of a device, by start."""

    @classmethod
    def of(cls, trace: Trace, rank: int, row: int, steps: NDArray[np.intp]) -> DeviceRank:
        """``steps`` are the rows of the rank's recorded steps."""
        events, own = trace.events, trace.of_rank(rank)
        rows = np.arange(own.start, own.stop)
        place = np.searchsorted(trace.steps.step[steps], events.step[rows])
        inside = place < len(steps)
        own_step = steps[place[inside]]
        # Work after the last step that was recorded as a whole belongs to the next one.
        is_own = events.step[rows[inside]] == trace.steps.step[own_step]
        is_own &= events.arrival_ns[rows[inside]] <= trace.steps.end_ns[own_step]
        rows = rows[inside][is_own]
        rows = rows[np.argsort(events.start_ns[rows], kind="stable")]
        stream = events.stream[rows]
        numbers, first = np.unique(stream, return_index=True)
        parts: dict[bool, list[I8]] = {True: [], False: []}
        for number in numbers[np.argsort(first)].tolist():
            is_device = int(trace.streams.kind[number]) in DEVICE_STREAMS
            parts[is_device].append(rows[stream == number])
        return cls(
            trace=trace,
            rank=rank,
            row=row,
            step=trace.steps.step[steps],
            step_start_ns=trace.steps.start_ns[steps],
            step_end_ns=trace.steps.end_ns[steps],
            threads=parts[False],
            streams=parts[True],
        )

    @property
    def origin_ns(self) -> int:
        """Start of its first step."""
        return int(self.step_start_ns[0])

    def step_at(self, times_ns: I8) -> I4:
        """Returns the step that each time lies in or, between steps, the one before."""
        place = np.searchsorted(self.step_start_ns, times_ns, side="left") - 1
        return self.step[np.maximum(place, 0)]

    @property
    def rows(self) -> I8:
        return np.concatenate([*self.threads, *self.streams, np.empty(0, dtype=np.int64)])

    @cached_property
    def ended(self) -> I8:
        """Rows of the events of all streams of devices, by end and row."""
        rows = np.concatenate([*self.streams, np.empty(0, dtype=np.int64)])
        return rows[np.lexsort((rows, self.end_ns(rows)))]

    @cached_property
    def ended_ns(self) -> I8:
        """End of each of ``ended``, rising."""
        return self.end_ns(self.ended)

    def end_ns(self, rows: I8 | I4) -> I8:
        events = self.trace.events
        return events.start_ns[rows] + events.dur_ns[rows]

    def next_launch_ns(self, kernels: I8) -> I8:
        """Returns when the next kernel on the stream of each kernel was launched."""
        first = int(self.trace.of_rank(self.rank).start)
        return self._next_launch_ns[kernels - first]

    @cached_property
    def _next_launch_ns(self) -> I8:
        """Launch of the next kernel on the same stream, by row of the rank."""
        own = self.trace.of_rank(self.rank)
        found = np.full(int(own.stop - own.start), np.iinfo(np.int64).max)
        for stream in self.streams:
            found[stream[:-1] - int(own.start)] = self.trace.events.arrival_ns[stream[1:]]
        return found

    def are_named(self, rows: I8, word: str) -> NDArray[np.bool_]:
        """Marks the events whose names contain ``word``, in any case."""
        names, number = np.unique(self.trace.events.name[rows], return_inverse=True)
        has_word = [word in self.trace.strings[name].lower() for name in names.tolist()]
        return np.array(has_word, dtype=bool)[number]
