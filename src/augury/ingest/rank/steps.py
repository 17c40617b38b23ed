"""When each step of a rank began and ended, and how it was recorded."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from augury.core.columns import I4, I8, U1
from augury.core.enums import StepState
from augury.core.graph.graph import NONE
from augury.core.trace.rank_record import RankRecord, RecordedWindow
from augury.core.trace.step_states import step_starts as starts_of
from augury.core.trace.step_states import step_states
from augury.core.trace.trace import Clock, Steps
from augury.ingest.clocks.rank_clocks import to_common


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
    return starts_of(record.step_end_ns, record.resumed)


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
    windows = [(window.first, window.last, _state(window)) for window in record.all_windows]
    return step_states(len(record.step_end_ns), windows, [step for step, _ in record.resumed])


def _state(window: RecordedWindow) -> StepState:
    if window.trace is None:
        return StepState.DISTURBED
    return StepState.DETAILED if window.is_detailed else StepState.TIMED


def _cpu(record: RankRecord) -> tuple[I8, I8, I8]:
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
        # Absurd readings are no readings.
        if not 0 <= main < 1 << 60 or not 0 <= everything < 1 << 60:
            continue
        columns[0][step - 1] = main
        if before.main_delay_ns >= 0:
            columns[1][step - 1] = min(max(0, now.main_delay_ns - before.main_delay_ns), 1 << 60)
        columns[2][step - 1] = max(0, everything - main)
    return columns[0], columns[1], columns[2]
