"""Times of a rank's steps, with CPU time, waits for a core and the machine's speed."""

from __future__ import annotations

import os
import threading
import time
from itertools import pairwise
from statistics import median

from augury.core.trace.rank_record import MachineReading, StepCpu

MAX_LOGGED_STEPS = 100_000
"""Number of steps after which the log is full."""

COPY_BYTES = 4 << 20
"""Size of the copy that a probe times. It exceeds the caches of a core and takes a third of a
millisecond."""
MIN_PROBE_INTERVAL_NS = 250_000_000
"""Minimum time between two probes, so that probes take about a thousandth of the run."""
MAX_PROBES = 4000


class StepTimeLog:
    """Log of one rank's steps, counted from 1. The training thread writes it when a step ends."""

    def __init__(self) -> None:
        self.end_ns: list[int] = []
        self.resumed: list[tuple[int, int]] = []
        """Step, and the time at which the job continued after the recorder's work at its end."""
        self.delay_ns: list[int] = []
        """Cumulative time that the training thread has waited for a core, at the end of each step;
        -1 if unknown."""
        self.cpu: list[StepCpu] = []
        self.machine: list[MachineReading] = []
        """The first reading and the newest."""
        self._clock = CpuClock()
        self._speed = SpeedProbe()

    @property
    def num_steps(self) -> int:
        return len(self.end_ns)

    @property
    def is_full(self) -> bool:
        return len(self.end_ns) == MAX_LOGGED_STEPS

    @property
    def speed(self) -> list[tuple[int, int]]:
        """Probes of the machine's speed: step, and duration of the copy in nanoseconds."""
        return self._speed.probes

    def end_step(self, now_ns: int) -> int:
        """Notes the end of a step and returns the number of that step."""
        self.end_ns.append(now_ns)
        self.delay_ns.append(self._clock.delay_ns())
        return len(self.end_ns)

    def resume(self, step: int) -> None:
        """Notes that the job continues now, after ``step``."""
        self.resumed.append((step, time.time_ns()))

    def read_cpu(self, step: int) -> None:
        self.cpu.append(StepCpu(step, *self._clock.read()))

    def read_machine(self) -> None:
        """Keeps the first reading and replaces the newest."""
        reading = machine_reading()
        self.machine[1:] = [] if reading is None else [reading]

    def probe_speed(self, step: int) -> None:
        self._speed.probe(step)

    def median_step_ns(self, first: int, last: int) -> int:
        """Returns the median step of a window that opens at the end of step ``first``. Its first
        step, ``first + 1``, is left out because opening the window delays it."""
        return round(median(b - a for a, b in pairwise(self.end_ns[first:last])))


class CpuClock:
    """CPU time of the training thread and its process. A reading takes some microseconds."""

    def __init__(self) -> None:
        self._thread: int | None = None
        self._schedstat: int | None = None

    def read(self) -> tuple[int, int, int]:
        """Returns cumulative nanoseconds: CPU time of the thread, its wait for a core (-1 if
        unknown), CPU time of the process."""
        return time.thread_time_ns(), self.delay_ns(), time.process_time_ns()

    def delay_ns(self) -> int:
        """Returns for how long the thread was runnable without a core; -1 if unknown."""
        try:
            # /proc/thread-self is the thread that opens the file, and training may change threads.
            if self._thread != threading.get_ident():
                self.close()
                self._thread = threading.get_ident()
                self._schedstat = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
            if self._schedstat is None:
                return -1
            return int(os.pread(self._schedstat, 100, 0).split()[1])
        except (OSError, ValueError, IndexError):
            return -1

    def close(self) -> None:
        if self._schedstat is not None:
            os.close(self._schedstat)
            self._schedstat = None


def machine_reading() -> MachineReading | None:
    """Returns the CPU time of the machine and of this process; None on systems without
    ``/proc/stat``. CPU time that a hypervisor took away counts as time of other processes."""
    try:
        with open("/proc/stat", "rb") as file:
            user, nice, system, _idle, _iowait, *others = map(int, file.readline().split()[1:9])
        ticks = user + nice + system + sum(others)
        busy_ns = ticks * 10**9 // os.sysconf("SC_CLK_TCK")
        return MachineReading(time.time_ns(), busy_ns, time.process_time_ns())
    except (OSError, ValueError):
        return None


class SpeedProbe:
    """Measures the machine's speed between steps, by the duration of a fixed memory copy.

    Other tenants of a shared host slow memory down by 5 to 20 %, for seconds or minutes, and no
    system counter shows it. The probes tell a comparison of two runs whether the machine changed.
    """

    def __init__(self) -> None:
        self.probes: list[tuple[int, int]] = []
        """The step that had ended, and the duration of the copy in nanoseconds."""
        self._interval_ns = MIN_PROBE_INTERVAL_NS
        self._next_ns = 0
        self._source = bytearray(0)
        self._target = memoryview(self._source)

    def probe(self, step: int) -> None:
        """Times one copy, if a probe is due."""
        now_ns = time.monotonic_ns()
        if now_ns < self._next_ns:
            return
        self._next_ns = now_ns + self._interval_ns
        if not self._source:
            # Pages are allocated at the first write, which must not be measured.
            self._source = bytearray(COPY_BYTES)
            self._target = memoryview(bytearray(COPY_BYTES))
            self._target[:] = self._source
        start_ns = time.perf_counter_ns()
        self._target[:] = self._source
        self.probes.append((step, time.perf_counter_ns() - start_ns))
        if len(self.probes) > MAX_PROBES:
            # A long job keeps every other probe and is probed half as often.
            self.probes = self.probes[::2]
            self._interval_ns *= 2
