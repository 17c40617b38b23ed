"""Waits of host threads that left no event: for another thread, or for a kernel.

Backward runs on a thread of its own while the program waits, and DDP waits for its timers. Traces
record no such waits. A thread waited for another one if it was idle, and the other one worked only
within that time: it was handed work and has finished it. It waited for a kernel if it went on just
after the kernel had ended, and the stream of the kernel had nothing left to do.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from augury.build.recorded.device.device_rank import DeviceRank
from augury.core.columns import I8
from augury.core.graph.graph import NONE

MIN_IDLE_NS = 50_000
"""Shortest idle time of a thread that may be a wait."""
MIN_UNNAMED_WAIT_NS = 500_000
"""Shortest wait for a kernel if nothing but the times suggests a wait."""
MAX_RETURN_NS = 60_000
"""Longest time between the end of a kernel and the next event of the thread that waited for it."""
_READS_TIMER = "eventelapsedtime"
"""Word in the names of calls that fail before their events have completed: programs wait first."""


@dataclass(frozen=True, slots=True)
class IdleWaits:
    """Waits of one thread, one entry each."""

    from_ns: I8
    """End of the last event of the thread before it waits."""
    until_ns: I8
    """End of what it waits for."""
    thread: I8
    """Index of the thread that it waits for; NONE if it waits for a kernel."""
    kernel: I8
    """Row of the kernel that it waits for; NONE if it waits for a thread."""

    def only(self, kept: NDArray[np.bool_]) -> IdleWaits:
        return IdleWaits(
            self.from_ns[kept], self.until_ns[kept], self.thread[kept], self.kernel[kept]
        )


@dataclass(frozen=True, slots=True)
class _Idle:
    """Times in which a thread ran nothing, from the start of the first step on; the last one has
    no end."""

    from_ns: I8
    to_ns: I8
    began_ns: I8
    """Start of the work before each of them."""
    next_row: I8
    """Row of the event after each of them; NONE after the last one."""


def find_waits(own: DeviceRank, threads: list[I8]) -> list[IdleWaits]:
    """Returns the waits of each thread; ``threads`` has the rows of their events, by start."""
    idle = [_idle_times(own, thread) for thread in threads]
    found = []
    for i, times in enumerate(idle):
        from_ns, to_ns = times.from_ns[:-1], times.to_ns[:-1]
        kernel = _awaited_kernels(own, from_ns, to_ns, times.next_row[:-1])
        until_ns = np.where(kernel == NONE, from_ns, own.end_ns(kernel))
        awaited = np.full(len(from_ns), NONE, dtype=np.int64)
        for j, other in enumerate(idle):
            if j == i:
                continue
            last = np.searchsorted(other.from_ns, to_ns, side="right") - 1
            fits = (last >= 0) & (other.began_ns[last] >= from_ns)
            fits &= other.from_ns[last] > until_ns
            until_ns[fits], awaited[fits] = other.from_ns[last[fits]], j
        kernel = np.where(awaited == NONE, kernel, NONE)
        waits = IdleWaits(from_ns, until_ns, awaited, kernel)
        found.append(waits.only(until_ns > from_ns))
    return found


def _idle_times(own: DeviceRank, thread: I8) -> _Idle:
    """Ranges that a program opens cover its waits, so only innermost events count as work."""
    events = own.trace.events
    first = int(thread.min())
    is_around = np.zeros(int(thread.max()) - first + 1, dtype=bool)
    parents = events.parent[thread]
    is_around[parents[parents >= first] - first] = True
    rows = thread[~is_around[thread - first]]
    start_ns = events.start_ns[rows]
    reached_ns = np.maximum.accumulate(np.concatenate([[own.origin_ns], own.end_ns(rows)]))
    is_idle = start_ns - reached_ns[:-1] >= MIN_IDLE_NS
    resumed_ns = start_ns[is_idle]
    return _Idle(
        from_ns=np.concatenate([reached_ns[:-1][is_idle], reached_ns[-1:]]),
        to_ns=np.concatenate([resumed_ns, [np.iinfo(np.int64).max]]),
        began_ns=np.concatenate([[own.origin_ns], resumed_ns]),
        next_row=np.concatenate([rows[is_idle], [NONE]]),
    )


def _awaited_kernels(own: DeviceRank, from_ns: I8, to_ns: I8, next_row: I8) -> I8:
    """Returns the kernel that ended last before a thread went on, if the thread waited for it."""
    events, kernels = own.trace.events, own.ended
    found = np.full(len(from_ns), NONE, dtype=np.int64)
    if not len(kernels):
        return found
    place = np.searchsorted(own.ended_ns, to_ns, side="right") - 1
    kernel = kernels[place]
    fits = (place >= 0) & (to_ns - own.ended_ns[place] <= MAX_RETURN_NS)
    fits &= (own.ended_ns[place] > from_ns) & (events.arrival_ns[kernel] < from_ns)
    is_long = to_ns - from_ns >= MIN_UNNAMED_WAIT_NS
    is_last = own.next_launch_ns(kernel) >= to_ns
    fits &= own.are_named(next_row, _READS_TIMER) | (is_long & is_last)
    found[fits] = kernel[fits]
    return found
