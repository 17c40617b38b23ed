"""The speed of the machine while a job runs: how long the same copy of memory takes now and then.

Neighbours on a shared host slow memory down, by 5 to 20 % and for seconds or minutes, and no
counter of the system tells. A comparison of two runs needs to know.
"""

from __future__ import annotations

import time

COPY_BYTES = 4 << 20
"""More than the caches of a core hold, and copied in a third of a millisecond."""
EVERY_NS = 250_000_000
"""At least between two probes: a thousandth of the time."""
MAX_PROBES = 4000


class SpeedProbe:
    """Called on the training thread, between steps."""

    def __init__(self) -> None:
        self.probes: list[list[int]] = []
        """``[step, ns]``: the step that had ended, and what the copy took."""
        self._every_ns = EVERY_NS
        self._next_ns = 0
        self._source = bytearray(0)
        self._target = memoryview(self._source)

    def probe(self, step: int) -> None:
        """Measure, if that is due."""
        now_ns = time.monotonic_ns()
        if now_ns < self._next_ns:
            return
        self._next_ns = now_ns + self._every_ns
        if not self._source:
            # Memory is made when it is written to: the first copy would measure that.
            self._source = bytearray(COPY_BYTES)
            self._target = memoryview(bytearray(COPY_BYTES))
            self._target[:] = self._source
        began_ns = time.perf_counter_ns()
        self._target[:] = self._source
        self.probes.append([step, time.perf_counter_ns() - began_ns])
        if len(self.probes) > MAX_PROBES:
            self.probes = self.probes[::2]
            self._every_ns *= 2
