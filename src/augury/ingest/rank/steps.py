"""Start, end and state of each step of a rank: from its record, or from annotations in a trace."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from itertools import pairwise

import numpy as np

from augury.core.columns import I4, I8, U1
from augury.core.enums import StepState
from augury.core.graph.graph import NONE
from augury.core.ledger import Ledger
from augury.core.trace.rank_record import RankRecord, RecordedWindow
from augury.core.trace.step_states import step_starts as starts_of
from augury.core.trace.step_states import step_states
from augury.core.trace.trace import Clock, Steps
from augury.core.vocabulary.torch import OPTIMIZER_STEP
from augury.ingest.clocks.rank_clocks import to_common
from augury.ingest.formats.kineto import KinetoTrace
from augury.ingest.rank.kernel_launches import last_row_with
from augury.ingest.rank.step_periods import step_periods
from augury.ingest.vocabulary.torch import (
    GLOO,
    PROFILER_STEP,
    is_backward_node,
    profiler_step,
)

AnnotatedStep = tuple[int, int, int, StepState]
"""Number, start, end and state of a step."""
_FAR_NS = 10**15


def recorded_step_table(records: list[RankRecord], clocks: Mapping[int, Clock]) -> Steps:
    parts = [_recorded_steps(record, clocks[record.rank]) for record in records]
    if not parts:
        return Steps.empty()
    return Steps(
        **{
            name: np.concatenate([getattr(part, name) for part in parts])
            for name, _ in Steps.schema()
        }
    )


def step_starts(record: RankRecord) -> I8:
    """Returns the start of each recorded step."""
    return starts_of(record.step_end_ns, record.resumed)


def step_at(record: RankRecord, times_ns: I8) -> I4:
    """Returns the step in which each time lies."""
    ends = np.array(record.step_end_ns, dtype=np.int64)
    found: I4 = (np.searchsorted(ends, times_ns, side="left") + 1).astype(np.int32)
    return found


def window_steps(
    record: RankRecord, window: RecordedWindow, trace: KinetoTrace, ledger: Ledger
) -> I4:
    """Returns the step of each event of a window's trace; NONE outside of the window."""
    step = step_at(record, trace.start_ns)
    outside = (step <= window.first) | (step > window.last)
    starts_ns = step_starts(record)
    if window.first < len(starts_ns):
        outside |= trace.start_ns < starts_ns[window.first]
    is_late = np.zeros(len(step), dtype=bool)
    is_late[[*trace.named(GLOO)]] = True
    # Without a barrier the last collectives of a step may run after its end.
    is_late &= outside & (step > window.last) & (trace.start_ns < window_closed_ns(record, window))
    outside &= ~is_late
    step[outside] = NONE
    step[is_late] = window.last
    is_far = outside & (np.abs(trace.start_ns - (record.step_end_ns or [0])[-1]) > _FAR_NS)
    ledger.note(
        "outside-window",
        "an event lies days away from its job",
        count=int(is_far.sum()),
        example=window.trace or "",
    )
    return step


def window_closed_ns(record: RankRecord, window: RecordedWindow) -> int:
    """Returns the time at which the job went on after the window's last step."""
    return max((at_ns for step, at_ns in record.resumed if step == window.last), default=0)


def _recorded_steps(record: RankRecord, clock: Clock) -> Steps:
    size = len(record.step_end_ns)
    cpu = _cpu_times(record)
    return Steps(
        rank=np.full(size, record.rank, dtype=np.int32),
        step=np.arange(1, size + 1, dtype=np.int32),
        start_ns=to_common(clock, step_starts(record)),
        end_ns=to_common(clock, np.array(record.step_end_ns, dtype=np.int64)),
        state=_states(record),
        cpu_ns=cpu[0],
        delay_ns=cpu[1],
        helper_cpu_ns=cpu[2],
    )


def _states(record: RankRecord) -> U1:
    windows = [(window.first, window.last, _state(window)) for window in record.all_windows]
    return step_states(len(record.step_end_ns), windows, [step for step, _ in record.resumed])


def _state(window: RecordedWindow) -> StepState:
    if window.trace is None:
        return StepState.DISTURBED
    return StepState.DETAILED if window.is_detailed else StepState.TIMED


def _cpu_times(record: RankRecord) -> tuple[I8, I8, I8]:
    size = len(record.step_end_ns)
    columns = tuple(np.full(size, NONE, dtype=np.int64) for _ in range(3))
    delays = np.array(record.step_delay_ns[:size], dtype=np.int64)
    known = np.flatnonzero((delays[1:] >= 0) & (delays[:-1] >= 0)) + 1
    columns[1][known] = np.clip(delays[known] - delays[known - 1], 0, 1 << 60)
    readings = {reading.step: reading for reading in record.step_cpu}
    for step, now in readings.items():
        before = readings.get(step - 1)
        if before is None or not 1 <= step <= size:
            continue
        main = now.main_cpu_ns - before.main_cpu_ns
        everything = now.process_cpu_ns - before.process_cpu_ns
        # Absurd readings are dropped.
        if not 0 <= main < 1 << 60 or not 0 <= everything < 1 << 60:
            continue
        columns[0][step - 1] = main
        if before.main_delay_ns >= 0:
            columns[1][step - 1] = min(max(0, now.main_delay_ns - before.main_delay_ns), 1 << 60)
        columns[2][step - 1] = max(0, everything - main)
    return columns[0], columns[1], columns[2]


class StepSource(IntEnum):
    """Source of the steps of a trace; a higher one is more certain."""

    PERIODS = 0
    """Periods of the operations, or the whole trace."""
    UPDATES = 1
    ANNOTATIONS = 2


def found_steps(trace: KinetoTrace, main_thread: int) -> tuple[list[AnnotatedStep], StepSource]:
    """Returns the steps that the profiler's schedule numbered; else one step from the end of each
    update to the end of the next; else one step for each period of the main thread's operations;
    else one step in all."""
    found: list[AnnotatedStep] = []
    for i in trace.named(PROFILER_STEP):
        number = profiler_step(trace.name[i])
        if number is not None and trace.thread[i] == main_thread:
            start_ns = int(trace.start_ns[i])
            found.append((number, start_ns, start_ns + int(trace.dur_ns[i]), StepState.TIMED))
    if found:
        unique = {step[0]: step for step in sorted(found, reverse=True)}
        return sorted(unique.values()), StepSource.ANNOTATIONS
    ends_ns = _update_ends(trace, main_thread)
    # From the end of one update to the end of the next: a single one bounds no step.
    if len(ends_ns) > 1:
        bounds_ns = [int(trace.start_ns.min()), *ends_ns]
        return [
            (number, start_ns, end_ns, StepState.TIMED if number > 1 else StepState.DISTURBED)
            for number, (start_ns, end_ns) in enumerate(pairwise(bounds_ns), start=1)
        ], StepSource.UPDATES
    outermost = np.flatnonzero((trace.thread == main_thread) & (trace.parent == NONE))
    starts_ns = trace.start_ns[outermost]
    names = _names_with_kernels(trace, outermost)
    periods = step_periods(names, starts_ns, starts_ns + trace.dur_ns[outermost])
    if not periods:
        periods = [(int(trace.start_ns.min()), int((trace.start_ns + trace.dur_ns).max()))]
    return [
        (number, begin_ns, end_ns, StepState.TIMED)
        for number, (begin_ns, end_ns) in enumerate(periods, start=1)
    ], StepSource.PERIODS


def _names_with_kernels(trace: KinetoTrace, rows: I8) -> list[str]:
    """Returns the names of operations, and of launches those of their kernels: the host launches
    all kernels by the same call."""
    on_device = np.flatnonzero(trace.is_on_device & (trace.correlation != 0))
    kernels = last_row_with(trace.correlation, on_device, rows)
    kernels[trace.correlation[rows] == 0] = NONE
    return [trace.name[row] for row in np.where(kernels == NONE, rows, kernels).tolist()]


def _update_ends(trace: KinetoTrace, main_thread: int) -> list[int]:
    """Returns the end of the update of each step. Optimizers that call others, and several
    optimizers that step without a backward between them, are one update."""
    rows = [i for i in trace.named(OPTIMIZER_STEP) if trace.thread[i] == main_thread]
    backward = np.flatnonzero(trace.name.where(is_backward_node))
    backward_ns = np.sort(trace.start_ns[backward])
    ends_ns: list[int] = []
    for i in rows:
        start_ns = int(trace.start_ns[i])
        end_ns = start_ns + int(trace.dur_ns[i])
        if ends_ns:
            first, last = np.searchsorted(backward_ns, [ends_ns[-1], start_ns])
            if start_ns < ends_ns[-1] or (len(backward_ns) and first == last):
                ends_ns[-1] = max(ends_ns[-1], end_ns)
                continue
        ends_ns.append(end_ns)
    return ends_ns


def annotated_step_at(steps: list[AnnotatedStep], times_ns: I8) -> I4:
    """Returns the step of each time; a time between two steps belongs to the first of the two,
    because work that it launched is still running."""
    starts_ns = np.array([start_ns for _, start_ns, _, _ in steps], dtype=np.int64)
    numbers = np.array([NONE, *(number for number, _, _, _ in steps)], dtype=np.int32)
    found: I4 = numbers[np.searchsorted(starts_ns, times_ns, side="right")]
    return found


def annotated_step_table(
    steps: Mapping[int, list[AnnotatedStep]], clocks: Mapping[int, Clock]
) -> Steps:
    """``steps`` and ``clocks`` by rank."""
    rows = [(rank, *step) for rank, own in steps.items() for step in own]
    table = np.array(rows, dtype=np.int64).reshape(-1, 5).T
    moved = table[2:4].copy()
    for rank, clock in clocks.items():
        own = table[0] == rank
        moved[:, own] = to_common(clock, moved[:, own])
    unknown = np.full(table.shape[1], NONE, dtype=np.int64)
    return Steps(
        rank=table[0].astype(np.int32),
        step=table[1].astype(np.int32),
        start_ns=moved[0],
        end_ns=moved[1],
        state=table[4].astype(np.uint8),
        cpu_ns=unknown,
        delay_ns=unknown,
        helper_cpu_ns=unknown,
    )
