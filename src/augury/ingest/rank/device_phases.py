"""Phases of traces with devices: host operations between the named ones, and all kernels.

A kernel has the phase of its launch. Host operations that no name explains get theirs from autograd
and from the phases before and after them. Kernels that were launched before the recording began get
theirs from the kernels one step later, or from kernels of the same name.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from augury.core.columns import I4, I8, U1
from augury.core.enums import Phase, are_communication
from augury.core.graph.graph import NONE
from augury.ingest.ancestors import UNSTATED, inherit_phases
from augury.ingest.formats.kineto import KinetoTrace
from augury.ingest.trace_builder import MutableEvents
from augury.ingest.vocabulary.phase_words import kernel_phase, range_phase
from augury.ingest.vocabulary.torch import is_collective_kernel

_MIN_ALIKE = 0.9
"""Share of kernels that must have the name of the kernel one step later."""


def fill_host_phases(trace: KinetoTrace, phase: U1) -> U1:
    """Returns the phases of host events, with those that ``phase`` leaves open. Traces without a
    device are left as they are.

    Ranges that programs open say their phase in words. An operation with a sequence number of
    autograd will be differentiated, so it is forward. Other operations belong to what is around
    them in time: after forward they are forward (the loss), between backward and update they are
    update (clipping)."""
    on_host = ~trace.is_on_device
    if on_host.all():
        return phase
    word_of = np.array([range_phase(name) for name in trace.name.strings], dtype=np.uint8)
    words = word_of[trace.name.number]
    found = phase.copy()
    is_open = on_host & (phase == Phase.NONE)
    stated = is_open & (words != Phase.NONE) & (words != Phase.DATA)
    found[stated] = words[stated]
    is_differentiated = (trace.sequence >= 0) & (trace.forward_thread == 0)
    found[is_open & ~stated & is_differentiated] = Phase.FORWARD
    found = _inherited(trace.parent, found)
    loads = on_host & (found == Phase.NONE) & (words == Phase.DATA)
    found[loads] = Phase.DATA
    found = _inherited(trace.parent, found)
    return _inherited(trace.parent, _between_phases(trace, found, on_host))


def fill_kernel_phases(events: MutableEvents, trace: KinetoTrace) -> None:
    """Fills the phases of kernels from those of host events."""
    rows = np.flatnonzero(trace.is_on_device)
    launched = rows[events.cause[rows] != NONE]
    events.phase[launched] = events.phase[events.cause[launched]]
    for row, later in _one_step_later(events, trace, rows):
        events.phase[row] = events.phase[later]
    _fill_by_name(events, trace, rows[events.cause[rows] == NONE], launched)


def fill_unlaunched_kernels(events: MutableEvents, trace: KinetoTrace) -> None:
    """Gives kernels whose launch was not recorded the layer of those one step later, and kernels of
    collectives also kind and size: their own names may not say what they are."""
    rows = np.flatnonzero(trace.is_on_device)
    for row, later in _one_step_later(events, trace, rows):
        if events.layer[row] == NONE:
            events.layer[row] = events.layer[later]
        if is_collective_kernel(trace.name[row]) and are_communication(events.kind[later]):
            events.kind[row] = events.kind[later]
            events.size_bytes[row] = events.size_bytes[later]


def _inherited(parent: I4, phase: U1) -> U1:
    """Gives events without a phase that of the innermost event around them that has one."""
    unstated = np.where(phase == Phase.NONE, np.uint8(UNSTATED), phase)
    found = inherit_phases(parent, unstated, ())
    found[found == UNSTATED] = Phase.NONE
    return found


def _between_phases(trace: KinetoTrace, phase: U1, on_host: NDArray[np.bool_]) -> U1:
    """Gives a phase to events that are in none and have none within, by the phases before and
    after them on all threads."""
    found = phase.copy()
    around = np.where(trace.parent >= 0, phase[trace.parent], Phase.NONE)
    outermost = np.flatnonzero(on_host & (phase != Phase.NONE) & (around == Phase.NONE))
    outermost = outermost[np.argsort(trace.start_ns[outermost], kind="stable")]
    if not len(outermost):
        return found
    is_around = np.zeros(len(phase), dtype=bool)
    outer = trace.parent[outermost]
    while len(outer := np.unique(outer[outer >= 0])):
        outer = outer[~is_around[outer]]
        is_around[outer] = True
        outer = trace.parent[outer]
    rows = np.flatnonzero(on_host & (phase == Phase.NONE) & ~is_around)
    starts_ns, phases = trace.start_ns[outermost], phase[outermost]
    place = np.searchsorted(starts_ns, trace.start_ns[rows], side="right")
    before = np.concatenate([[Phase.NONE], phases])[place]
    after = np.concatenate([phases, [Phase.NONE]])[place]
    found[rows[before == Phase.FORWARD]] = Phase.FORWARD
    found[rows[(before == Phase.BACKWARD) & (after == Phase.BACKWARD)]] = Phase.BACKWARD
    found[rows[(before == Phase.BACKWARD) & (after == Phase.UPDATE)]] = Phase.UPDATE
    return found


def _one_step_later(
    events: MutableEvents, trace: KinetoTrace, rows: NDArray[np.intp]
) -> list[tuple[int, int]]:
    """Returns the kernels without a launch, the last one first, each with the kernel of the same
    stream and name one step later. Streams whose names do not agree are left out."""
    found: list[tuple[int, int]] = []
    unknown_on = np.unique(trace.thread[rows[events.cause[rows] == NONE]])
    for thread in unknown_on.tolist():
        kernels = rows[trace.thread[rows] == thread]
        kernels = kernels[np.argsort(events.start_ns[kernels], kind="stable")]
        period = _kernels_per_step(events, kernels)
        if period is None:
            continue
        unknown = np.flatnonzero(events.cause[kernels] == NONE)
        unknown = unknown[unknown + period < len(kernels)]
        pairs = [
            (int(kernels[place]), int(kernels[place + period]))
            for place in unknown[::-1].tolist()
            if trace.name[kernels[place]] == trace.name[kernels[place + period]]
        ]
        if len(pairs) >= _MIN_ALIKE * len(unknown):
            found += pairs
    return found


def _kernels_per_step(events: MutableEvents, kernels: I8) -> int | None:
    """Returns how many kernels a stream runs per step, if most steps agree on it."""
    launched = kernels[events.cause[kernels] != NONE]
    steps, counts = np.unique(events.step[launched], return_counts=True)
    values, times = np.unique(counts[steps != NONE], return_counts=True)
    if not len(times) or times.max() < 2:
        return None
    return int(values[times.argmax()])


def _fill_by_name(
    events: MutableEvents,
    trace: KinetoTrace,
    rows: NDArray[np.intp],
    known: NDArray[np.intp],
) -> None:
    """Gives kernels without a phase the one in which kernels of the same name spend the most time,
    or the one that their name suggests."""
    time_ns: dict[tuple[str, int], int] = {}
    for row in known.tolist():
        key = trace.name[row], int(events.phase[row])
        time_ns[key] = time_ns.get(key, 0) + int(events.dur_ns[row])
    usual: dict[str, int] = {}
    for (name, phase), _ in sorted(time_ns.items(), key=lambda item: item[1]):
        if phase != Phase.NONE:
            usual[name] = phase
    for row in rows[events.phase[rows] == Phase.NONE].tolist():
        name = trace.name[row]
        events.phase[row] = usual.get(name, int(kernel_phase(name)))
