"""Splits the outermost events of a main thread where the phase changes inside of them.

The range of an optimizer step contains forward and backward if these run in a closure; a range of
the program may contain a whole step; under a plan without a barrier, forward contains updates.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import numpy as np

from augury.build.recorded.thread_segments import ThreadSegment
from augury.core.columns import I4
from augury.core.enums import KIND_OF_PHASE, OpKind, Phase
from augury.core.graph.graph import NONE
from augury.core.trace.trace import Trace

_TRAINING = (Phase.FORWARD, Phase.BACKWARD)


def phase_segments(trace: Trace, rank: int, top: I4) -> list[ThreadSegment]:
    """Returns the outermost events ``top`` of a rank's main thread as segments of one phase each,
    in order. Time of an event without a phase that is not covered by events inside of it is left
    out: it is a gap between segments."""
    inner = _inner_events(trace, rank)
    return [segment for event in top.tolist() for segment in _split(trace, event, inner)]


def _inner_events(trace: Trace, rank: int) -> dict[int, list[int]]:
    """Returns, by event, the events directly inside of it that have another phase or contain
    events of another phase. Events of a single phase are left out."""
    events, own = trace.events, trace.of_rank(rank)
    parent = events.parent[own]
    inside = np.flatnonzero(parent != NONE)
    differs = events.phase[own][inside] != events.phase[parent[inside]]
    is_wait = (events.kind[own][inside] == OpKind.SYNC) & (events.group[own][inside] != NONE)
    found: dict[int, set[int]] = defaultdict(set)
    for row in (inside[differs & ~is_wait] + own.start).tolist():
        event, outer = row, int(events.parent[row])
        while outer != NONE and event not in found[outer]:
            found[outer].add(event)
            event, outer = outer, int(events.parent[outer])
    return {event: sorted(rows) for event, rows in found.items()}


def _split(trace: Trace, event: int, inner: dict[int, list[int]]) -> list[ThreadSegment]:
    """Nesting may be deep in files that others wrote, so events wait on a stack."""
    segments: list[ThreadSegment] = []
    waiting: list[tuple[int, ThreadSegment | None]] = [(event, None)]
    """Events to split; with a segment, only that segment of the event."""
    while waiting:
        event, segment = waiting.pop()
        if segment is not None:
            segments.append(segment)
            continue
        rest, before = _segment(trace, event), Phase.NONE
        parts: list[tuple[int, ThreadSegment | None]] = []
        for row in inner.get(event, []):
            within, phase = _segment(trace, row), Phase(int(trace.events.phase[row]))
            if within.start_ns < rest.start_ns or within.end_ns > rest.end_ns:
                continue  # its times were cut
            is_gap = rest.kind == OpKind.OTHER or (
                # Here a closure runs operations that were not recorded.
                rest.kind == OpKind.UPDATE and before in _TRAINING and phase in _TRAINING
            )
            if not is_gap:
                parts.append((event, replace(rest, end_ns=within.start_ns)))
            parts.append((row, None))
            rest, before = replace(rest, start_ns=within.end_ns), phase
        if not parts or rest.kind != OpKind.OTHER:
            parts.append((event, rest))
        waiting += reversed(parts)
    return segments


def _segment(trace: Trace, event: int) -> ThreadSegment:
    """Returns an event as a segment. An event of kind OTHER gets the kind of its phase."""
    events = trace.events
    kind = OpKind(int(events.kind[event]))
    return ThreadSegment(
        kind=KIND_OF_PHASE[Phase(int(events.phase[event]))] if kind == OpKind.OTHER else kind,
        name=trace.name(event),
        start_ns=int(events.start_ns[event]),
        end_ns=int(events.start_ns[event] + events.dur_ns[event]),
        layer=trace.strings[int(events.layer[event])],
    )
