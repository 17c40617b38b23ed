"""When each step of a rank began and ended, and how it was watched."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from augury.core.graph import NONE
from augury.core.kinds import StepState
from augury.core.table import I4, I8, U1
from augury.core.trace import Clock, Steps
from augury.ingest.clocks import to_common
from augury.ingest.rank_record import RankRecord

WARM_UP_STEPS = 3


def steps_of(records: list[RankRecord], clocks: Mapping[int, Clock]) -> Steps:
    parts = [_of_rank(record, clocks[record.rank]) for record in records]
    if not parts:
        return Steps.empty()
    return Steps(
        **{
            name: np.concatenate([getattr(part, name) for part in parts])
            for name, _ in Steps.schema()
        }
    )


def step_starts(record: RankRecord) -> I8:
    """The end of the step before, or the time at which the recorder let the job go on. Nobody saw
    the first one start: it is given no duration."""
    ends = np.array(record.step_end_ns, dtype=np.int64)
    starts = np.concatenate([ends[:1], ends[:-1]])
    for step, ns in record.resumed:
        if step < len(ends):
            starts[step] = min(max(ns, starts[step]), ends[step])
    return starts


def step_at(record: RankRecord, times_ns: I8) -> I4:
    """The step in which each time lies."""
    ends = np.array(record.step_end_ns, dtype=np.int64)
    found: I4 = (np.searchsorted(ends, times_ns, side="left") + 1).astype(np.int32)
    return found


def _of_rank(record: RankRecord, clock: Clock) -> Steps:
    size = len(record.step_end_ns)
    cpu = _cpu(record)
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
    size = len(record.step_end_ns)
    state = np.full(size + 2, StepState.PLAIN, dtype=np.uint8)
    for window in record.all_windows:
        inside = slice(window.first + 1, min(window.last, size) + 1)
        if window.trace is None:
            state[inside] = StepState.DISTURBED
        elif window.is_detailed:
            state[inside] = StepState.DETAILED
        else:
            state[inside] = StepState.TIMED
        for step in (window.first + 1, window.last + 1):
            # A detailed step is not timed anyway, so opening its window disturbs nothing.
            if step <= size and state[step] != StepState.DETAILED:
                state[step] = StepState.DISTURBED
    for step, _ in record.resumed:
        if step + 1 <= size and state[step + 1] != StepState.DETAILED:
            state[step + 1] = StepState.DISTURBED
    warm = max(1, min(WARM_UP_STEPS, size // 4))
    state[: warm + 1] = StepState.DISTURBED
    return state[1 : size + 1]


def _cpu(record: RankRecord) -> tuple[I8, I8, I8]:
    size = len(record.step_end_ns)
    columns = tuple(np.full(size, NONE, dtype=np.int64) for _ in range(3))
    readings = {reading.step: reading for reading in record.step_cpu}
    for step, now in readings.items():
        before = readings.get(step - 1)
        if before is None or not 1 <= step <= size:
            continue
        main = now.main_cpu_ns - before.main_cpu_ns
        everything = now.process_cpu_ns - before.process_cpu_ns
        # Absurd readings are no readings.
        if not 0 <= main < 1 << 60 or not 0 <= everything < 1 << 60:
            continue
        columns[0][step - 1] = main
        if before.main_delay_ns >= 0:
            columns[1][step - 1] = min(max(0, now.main_delay_ns - before.main_delay_ns), 1 << 60)
        columns[2][step - 1] = max(0, everything - main)
    return columns[0], columns[1], columns[2]
