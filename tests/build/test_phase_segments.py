"""Outermost events of a main thread, split where the phase changes inside of them."""

from __future__ import annotations

import numpy as np

from augury.build.recorded.phase_segments import phase_segments
from augury.core.enums import KIND_OF_PHASE, Phase, StreamKind
from augury.core.graph.graph import NONE
from augury.core.trace.trace import Steps, Trace
from augury.ingest.trace_builder import MutableEvents, TraceBuilder

FORWARD, BACKWARD, UPDATE, NO_PHASE = Phase.FORWARD, Phase.BACKWARD, Phase.UPDATE, Phase.NONE

Event = tuple[Phase, int, int]
"""Phase, start and end."""


def split(*events: Event) -> list[tuple[str, int, int]]:
    """Returns the segments of events on one main thread: kind, start and end."""
    builder = TraceBuilder()
    start = np.array([start for _, start, _ in events], dtype=np.int64)
    end = np.array([end for _, _, end in events], dtype=np.int64)
    part = MutableEvents.blank(start, end - start)
    part.phase[:] = [phase for phase, _, _ in events]
    part.kind[:] = [KIND_OF_PHASE[phase] for phase, _, _ in events]
    part.name[:] = part.layer[:] = builder.strings.number("event")
    part.stream[:] = builder.stream(0, StreamKind.MAIN_THREAD, "main thread")
    builder.add(0, part)
    trace = Trace(
        events=builder.events(),
        streams=builder.streams(),
        steps=Steps.empty(),
        strings=builder.strings.table(),
        ranks=[],
        world_size=1,
    )
    top = np.flatnonzero(trace.events.parent == NONE).astype(np.int32)
    return [(one.kind.label, one.start_ns, one.end_ns) for one in phase_segments(trace, 0, top)]


def test_events_of_one_phase_stay_whole() -> None:
    assert split((FORWARD, 0, 10), (FORWARD, 1, 5), (BACKWARD, 10, 20), (UPDATE, 30, 40)) == [
        ("forward", 0, 10),
        ("backward", 10, 20),
        ("update", 30, 40),
    ]


def test_an_update_during_forward_splits_it() -> None:
    assert split((FORWARD, 0, 10), (UPDATE, 2, 3), (UPDATE, 5, 7)) == [
        ("forward", 0, 2),
        ("update", 2, 3),
        ("forward", 3, 5),
        ("update", 5, 7),
        ("forward", 7, 10),
    ]


def test_a_closure_splits_the_optimizer_and_leaves_gaps_open() -> None:
    """The time between forward and backward belongs to neither the closure nor the optimizer."""
    assert split(
        (UPDATE, 0, 100),
        (NO_PHASE, 5, 80),
        (FORWARD, 10, 30),
        (BACKWARD, 40, 45),
        (BACKWARD, 50, 60),
    ) == [
        ("update", 0, 5),
        ("forward", 10, 30),
        ("backward", 40, 45),
        ("backward", 50, 60),
        ("update", 80, 100),
    ]


def test_each_closure_of_a_step_splits_the_optimizer() -> None:
    closures = ((NO_PHASE, 10, 20), (FORWARD, 11, 19), (NO_PHASE, 30, 40), (FORWARD, 31, 39))
    assert split((UPDATE, 0, 50), *closures) == [
        ("update", 0, 10),
        ("forward", 11, 19),
        ("update", 20, 30),
        ("forward", 31, 39),
        ("update", 40, 50),
    ]


def test_an_unrecorded_closure_ends_with_backward() -> None:
    assert split((UPDATE, 0, 100), (FORWARD, 10, 30), (BACKWARD, 40, 60)) == [
        ("update", 0, 10),
        ("forward", 10, 30),
        ("backward", 40, 60),
        ("update", 60, 100),
    ]


def test_a_range_around_a_step_vanishes() -> None:
    assert split(
        (NO_PHASE, 0, 100),
        (NO_PHASE, 1, 70),
        (FORWARD, 2, 30),
        (BACKWARD, 40, 60),
        (UPDATE, 75, 90),
    ) == [("forward", 2, 30), ("backward", 40, 60), ("update", 75, 90)]


def test_deep_nesting_needs_no_deep_recursion() -> None:
    nested = [(FORWARD if i % 2 else BACKWARD, i, 10_000 - i) for i in range(3_000)]
    found = split(*nested)
    assert found[0] == ("backward", 0, 1)
    assert sum(end - start for _, start, end in found) == 10_000
