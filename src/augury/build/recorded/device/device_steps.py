"""Ends of steps in graphs of runs on devices, and the measured steps to compare them with.

A program that waits for its device in each step ends a step when its main thread does. A program
that never waits is ahead of its device: its steps end when their kernels have ended.
"""

from __future__ import annotations

import numpy as np

from augury.build.recorded.device.device_rank import DeviceRank
from augury.build.recorded.device.host_calls import STEP_END, HostThread
from augury.build.recorded.device.stream_kernels import StreamKernels
from augury.core.columns import I8
from augury.core.enums import OpKind, StepState
from augury.core.graph.builder import GraphBuilder
from augury.core.graph.graph import NONE
from augury.core.measured_step import counted_rows
from augury.core.time_intervals import IntervalSet
from augury.core.trace.trace import Trace

MAX_LAG = 0.02
"""Share of a step by which its kernels may end later than the step without being ahead."""


def is_synchronized(ranks: list[DeviceRank], threads: dict[int, list[HostThread]]) -> bool:
    """Returns whether all ranks wait for a kernel in each of their steps, or their kernels end with
    the step."""
    for own in ranks:
        lag_ns = _last_ends_ns(own) - own.step_end_ns
        waits = [thread.step[thread.awaited != NONE] for thread in threads[own.rank]]
        has_wait = np.isin(own.step, np.concatenate([*waits, np.empty(0, np.int64)]))
        if not (has_wait | (lag_ns <= MAX_LAG * (own.step_end_ns - own.step_start_ns))).all():
            return False
    return True


def add_step_ends(
    builder: GraphBuilder,
    own: DeviceRank,
    thread: HostThread,
    thread_op: I8,
    streams: list[StreamKernels],
) -> None:
    """Ends each step after ``thread`` has ended it and its kernels have."""
    ends = thread.entry == STEP_END
    first = builder.ops(
        np.full(int(ends.sum()), builder.string("step ends")),
        kind=OpKind.STEP_END,
        rank=own.row,
        work_ns=0,
        step=thread.step[ends],
    )
    op = np.arange(first, first + int(ends.sum()))
    builder.edges(op[:-1], op[1:])
    builder.edges(thread_op[ends], op)
    for stream in streams:
        step = own.trace.events.step[stream.kernels]
        is_last = np.concatenate([step[1:] != step[:-1], [True]])
        place = np.searchsorted(thread.step[ends], step[is_last])
        has_end = place < len(op)
        has_end[has_end] = thread.step[ends][place[has_end]] == step[is_last][has_end]
        builder.edges(stream.op[is_last][has_end], op[place[has_end]])


def add_bare_steps(builder: GraphBuilder, own: DeviceRank, start: int) -> None:
    """Adds the steps of a rank that recorded no thread: unexplained time."""
    before = start
    for step, dur_ns in zip(
        own.step.tolist(), _recorded_ns(own, is_synchronized=True).tolist(), strict=True
    ):
        unexplained = builder.op(
            "unexplained",
            kind=OpKind.UNEXPLAINED,
            rank=own.row,
            work_ns=max(0, dur_ns),
            step=step,
            after=[before],
        )
        before = builder.op(
            "step ends",
            kind=OpKind.STEP_END,
            rank=own.row,
            work_ns=0,
            step=step,
            after=[unexplained],
        )


def add_measured(
    builder: GraphBuilder, trace: Trace, ranks: list[DeviceRank], *, is_synchronized: bool
) -> None:
    """Adds the steps with which a prediction is compared: plain ones if there are any, otherwise
    the recorded ones."""
    steps = trace.steps
    counted = np.flatnonzero(counted_rows(trace))
    is_plain = bool(len(counted)) and steps.state[counted[0]] == StepState.PLAIN
    for own in ranks:
        if is_plain:
            rows = counted[steps.rank[counted] == own.rank]
            step, dur_ns = steps.step[rows], steps.end_ns[rows] - steps.start_ns[rows]
        else:
            step, dur_ns = own.step, _recorded_ns(own, is_synchronized=is_synchronized)
        share = _explained_share(own)
        for number, each_ns in zip(step.tolist(), dur_ns.tolist(), strict=True):
            if each_ns > 0:
                builder.measured_step(
                    rank=own.row, step=number, dur_ns=each_ns, explained_ns=round(each_ns * share)
                )


def _recorded_ns(own: DeviceRank, *, is_synchronized: bool) -> I8:
    """Returns the durations of a rank's recorded steps, from end to end."""
    end_ns = own.step_end_ns if is_synchronized else _last_ends_ns(own)
    return np.diff(np.maximum.accumulate(end_ns), prepend=own.origin_ns)


def _last_ends_ns(own: DeviceRank) -> I8:
    """Returns when each step and all of its kernels had ended."""
    end_ns = own.step_end_ns.copy()
    for stream in own.streams:
        place = np.searchsorted(own.step, own.trace.events.step[stream])
        np.maximum.at(end_ns, place, own.end_ns(stream))
    return end_ns


def _explained_share(own: DeviceRank) -> float:
    """Returns the share of a rank's steps in which a thread or a device ran something recorded.
    Gaps on a thread while a device works delay nothing."""
    rows, origin_ns = own.rows, own.origin_ns
    times = np.column_stack([own.trace.events.start_ns[rows], own.end_ns(rows)])
    start_ns, end_ns = own.step_start_ns - origin_ns, own.step_end_ns - origin_ns
    total_ns = int((end_ns - start_ns).sum())
    covered_ns = float(IntervalSet(times - origin_ns).within(start_ns, end_ns).sum())
    return min(1.0, covered_ns / max(1, total_ns))
