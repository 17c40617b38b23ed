"""Kernels whose ends let blocking calls of the device's runtime return."""

from __future__ import annotations

import numpy as np

from augury.build.recorded.device.device_rank import DeviceRank
from augury.core.columns import I8
from augury.core.graph.graph import NONE


def awaited_kernels(own: DeviceRank, calls: I8) -> I8:
    """Returns, for each call, the kernel that ended last while the call was waiting: any kernel
    launched before a synchronizing call, its own copy for a blocking copy; NONE for others."""
    copies = own.are_named(calls, "memcpy")
    waits = own.are_named(calls, "synchronize")
    found = np.full(len(calls), NONE, dtype=np.int64)
    found[copies] = _own_kernels(own, calls[copies])
    found[waits] = _last_kernels(own, calls[waits])
    return found


def _own_kernels(own: DeviceRank, calls: I8) -> I8:
    """Returns the last kernel that each call launched and that ended before the call returned."""
    events, kernels = own.trace.events, own.ended
    cause = events.cause[kernels]
    in_time = own.ended_ns <= own.end_ns(cause)
    in_time &= (cause != NONE) & (own.ended_ns > events.start_ns[cause])
    order = np.argsort(cause[in_time], kind="stable")
    cause, kernels = cause[in_time][order], kernels[in_time][order]
    last = np.searchsorted(cause, calls, side="right") - 1
    has_kernel = last >= 0
    has_kernel[has_kernel] = cause[last[has_kernel]] == calls[has_kernel]
    found = np.full(len(calls), NONE, dtype=np.int64)
    found[has_kernel] = kernels[last[has_kernel]]
    return found


def _last_kernels(own: DeviceRank, calls: I8) -> I8:
    """Returns the last kernel that ended during each call and was launched before it, or by it."""
    events, kernels = own.trace.events, own.ended
    found = np.full(len(calls), NONE, dtype=np.int64)
    start_ns = events.start_ns[calls]
    place = np.searchsorted(own.ended_ns, own.end_ns(calls), side="right") - 1
    left = np.arange(len(calls))
    while len(left):
        left = left[place[left] >= 0]
        left = left[own.ended_ns[place[left]] > start_ns[left]]
        kernel = kernels[place[left]]
        cause = events.cause[kernel]
        fits = (cause == NONE) | (events.start_ns[cause] < start_ns[left]) | (cause == calls[left])
        found[left[fits]] = kernel[fits]
        left = left[~fits]
        place[left] -= 1
    return found
