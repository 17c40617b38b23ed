"""Streams that wait for streams: kernels that waited for a kernel of another stream.

Traces without ids of events do not say which event a stream waits for. After a call that makes a
stream wait, the next kernel of the thread waits: for compute if it communicates, for communication
if it computes. It waits for the last kernel of the other kind that was launched before the call
and had ended when the waiting one started. If nothing of this explains the start of a kernel, it
depends on the kernel that ended on another stream just before.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from augury.build.recorded.device.device_rank import DeviceRank
from augury.core.columns import I8
from augury.core.enums import OpKind, StreamKind
from augury.core.graph.graph import NONE

NEAR_NS = 30_000
"""Longest time between the end of a kernel and the start of one that waited for it."""
LATENCY_NS = 10_000
"""Longest time that a device takes to start a kernel that nothing else delays."""


def waits_for_events(own: DeviceRank) -> tuple[I8, I8]:
    """Returns rows of kernels, rising, and the kernel of another stream that each waits for."""
    events, kernels = own.trace.events, own.ended
    calls = np.concatenate([*own.threads, np.empty(0, np.int64)])
    calls = calls[events.kind[calls] == OpKind.SYNC]
    calls = calls[own.are_named(calls, "waitevent")]
    launched = kernels[events.cause[kernels] != NONE]
    waiting, called_ns = _next_kernels(own, calls, launched)
    kind = own.trace.streams.kind[events.stream[kernels]]
    communicates = kind == StreamKind.COMMUNICATION
    found = np.full(len(waiting), NONE, dtype=np.int64)
    is_transfer = own.trace.streams.kind[events.stream[waiting]] == StreamKind.COMMUNICATION
    for mine, others in (
        (is_transfer, kernels[~communicates]),
        (~is_transfer, kernels[communicates]),
    ):
        found[mine] = _last_launched(own, waiting[mine], called_ns[mine], others)
    has_any = found != NONE
    return waiting[has_any], found[has_any]


def _next_kernels(own: DeviceRank, calls: I8, launched: I8) -> tuple[I8, I8]:
    """Returns the kernels that the threads of ``calls`` launched next, rising, and the time of the
    last call before each."""
    events = own.trace.events
    thread, called_ns = events.stream[calls], events.start_ns[calls]
    by = events.stream[events.cause[launched]]
    found = np.full(len(calls), NONE, dtype=np.int64)
    for one in np.unique(thread).tolist():
        mine = np.flatnonzero(thread == one)
        ours = launched[by == one]
        ours = ours[np.argsort(events.arrival_ns[ours], kind="stable")]
        place = np.searchsorted(events.arrival_ns[ours], called_ns[mine], side="left")
        is_followed = place < len(ours)
        found[mine[is_followed]] = ours[place[is_followed]]
    order = np.lexsort((called_ns, found))
    found, called_ns = found[order], called_ns[order]
    is_last = np.ones(len(found), dtype=bool)
    is_last[:-1] = found[1:] != found[:-1]
    is_last &= found != NONE
    return found[is_last], called_ns[is_last]


def _last_launched(own: DeviceRank, waiting: I8, called_ns: I8, others: I8) -> I8:
    """Returns which of ``others``, by end, ended last before each waiting kernel started, among
    those launched before the call."""
    events = own.trace.events
    found = np.full(len(waiting), NONE, dtype=np.int64)
    start_ns = events.start_ns[waiting]
    place = np.searchsorted(own.end_ns(others), start_ns, side="right") - 1
    left = np.flatnonzero(place >= 0)
    while len(left):
        kernel = others[place[left]]
        fits = (events.arrival_ns[kernel] < called_ns[left]) & (
            events.start_ns[kernel] < start_ns[left]
        )
        found[left[fits]] = kernel[fits]
        left = left[~fits]
        place[left] -= 1
        left = left[place[left] >= 0]
    return found


def ended_just_before(own: DeviceRank, kernels: I8, known_ns: I8) -> I8:
    """Returns the kernel that ended last on another stream before each kernel, if nothing that is
    known to have ended by ``known_ns`` explains the start; NONE for others."""
    events = own.trace.events
    start_ns = events.start_ns[kernels]
    unexplained = np.flatnonzero(start_ns - known_ns > LATENCY_NS)
    ended_on = events.stream[own.ended]
    changes = np.concatenate([[False], ended_on[1:] != ended_on[:-1]])
    last_of_other = np.maximum.accumulate(np.where(changes, np.arange(len(changes)), 0)) - 1
    found = np.full(len(kernels), NONE, dtype=np.int64)
    place = np.searchsorted(own.ended_ns, start_ns[unexplained], side="right") - 1
    is_own = (place >= 0) & (ended_on[place] == events.stream[kernels[0]])
    place = np.where(is_own, last_of_other[place], place)
    is_near: NDArray[np.bool_] = place >= 0
    is_near &= start_ns[unexplained] - own.ended_ns[place] <= NEAR_NS
    # Two kernels without duration must not wait for each other.
    is_near &= events.start_ns[own.ended[place]] < start_ns[unexplained]
    found[unexplained[is_near]] = own.ended[place[is_near]]
    return found
