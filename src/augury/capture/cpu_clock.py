"""CPU time of the training thread and of its process, and how long the thread waited for a core."""

from __future__ import annotations

import os
import threading
import time


class CpuClock:
    """Made and read on the training thread. A reading costs some microseconds."""

    def __init__(self) -> None:
        self._thread: int | None = None
        self._schedstat: int | None = None

    def read(self) -> list[int]:
        """``[thread CPU ns, thread's wait for a core ns or -1, process CPU ns]``, cumulative."""
        return [time.thread_time_ns(), self.delay_ns(), time.process_time_ns()]

    def delay_ns(self) -> int:
        """Time for which the thread was runnable and had no core, cumulative; -1 if unknown."""
        try:
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


def machine_reading() -> list[int] | None:
    """``[now ns, CPU time of all processes of the machine ns, of this process ns]``; None where
    Linux does not say. CPU time that a hypervisor took away counts as another's."""
    try:
        with open("/proc/stat", "rb") as file:
            user, nice, system, _idle, _iowait, *others = map(int, file.readline().split()[1:9])
        ticks = user + nice + system + sum(others)
        return [time.time_ns(), ticks * 10**9 // os.sysconf("SC_CLK_TCK"), time.process_time_ns()]
    except (OSError, ValueError):
        return None
