"""Alternates the rate of the links under a job that records itself, and finds the steps of each
rate afterwards.

The program is not changed and does not know of it. The recorder's messages tell when its windows
open: the rate is halved only between them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.testbed.bed import Bed
from benchmarks.validate.job import bed_as_recorded, bed_changed
from benchmarks.validate.running_job import RunningJob
from benchmarks.validate.settings import Setting
from benchmarks.validate.trainers_settings import HALVED

RECORDED_S, HALVED_S, LEAST_S = 2.0, 2.0, 0.8
"""Longest time at each rate between two windows, and the least time that is worth a change."""
WINDOW_STEPS = 5
MARGIN_STEPS = 4
"""Steps at the recorded rate around a window, besides its own."""
SETTLING_STEPS = 2
"""Steps after each change of the rate that are not used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """A time in which the links had one rate."""

    is_halved: bool
    start_ns: int
    end_ns: int

    def steps(self, ends_ns: Sequence[int]) -> range:
        """Returns the steps of a rank that lie in this stretch, without the first ones after a
        change of the rate."""
        steps = [
            step
            for step in range(2, len(ends_ns) + 1)
            if self.start_ns <= ends_ns[step - 2] and ends_ns[step - 1] <= self.end_ns
        ]
        if not self.start_ns:
            return range(1, steps[-1] + 1) if steps else range(0)
        steps = steps[SETTLING_STEPS:]
        return range(steps[0], steps[-1] + 1) if steps else range(0)


def alternate(bed: Bed, setting: Setting, job: RunningJob) -> Iterator[Stretch]:
    """Halves the rate after each window, and restores it before the next one can open: at half the
    rate, fewer steps pass in the same time."""
    start_ns = 0
    while (gap := job.next_gap()) is not None:
        num_steps, step_s = gap
        free_s = (num_steps - WINDOW_STEPS - MARGIN_STEPS) * step_s
        if free_s < LEAST_S:
            continue
        job.wait((WINDOW_STEPS + MARGIN_STEPS / 2) * step_s)
        until_s = time.monotonic() + free_s
        while job.is_running and (left_s := until_s - time.monotonic()) >= LEAST_S:
            yield Stretch(is_halved=False, start_ns=start_ns, end_ns=time.time_ns())
            bed_changed(bed, setting, HALVED)
            start_ns = time.time_ns()
            job.wait(min(left_s, HALVED_S))
            yield Stretch(is_halved=True, start_ns=start_ns, end_ns=time.time_ns())
            bed_as_recorded(bed, setting)
            start_ns = time.time_ns()
            job.wait(RECORDED_S)
    yield Stretch(is_halved=False, start_ns=start_ns, end_ns=time.time_ns())
