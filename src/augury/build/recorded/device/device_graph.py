"""Graphs of runs on devices: threads launch kernels, streams run them, streams wait for streams.

Traces seldom say which stream waited for which. The dependencies of a kernel are taken from its
launch, from the kernel before it on its stream, and, if neither explains its start, from the times:
the kernel that ended on another stream just before.
"""

from __future__ import annotations

import numpy as np

from augury.build.recorded.device.device_collectives import DeviceCollectives, device_collectives
from augury.build.recorded.device.device_memory import add_memory
from augury.build.recorded.device.device_rank import DeviceRank
from augury.build.recorded.device.device_steps import (
    add_bare_steps,
    add_measured,
    add_step_ends,
    is_synchronized,
)
from augury.build.recorded.device.host_calls import PAUSE, HostThread, add_thread, host_threads
from augury.build.recorded.device.joined_windows import join_windows, watched_steps
from augury.build.recorded.device.op_columns import GraphStrings
from augury.build.recorded.device.stream_kernels import add_kernels
from augury.build.recorded.device.stream_waits import waits_for_events
from augury.core.columns import I8
from augury.core.enums import OpKind, StreamKind
from augury.core.errors import InputError
from augury.core.graph.builder import GraphBuilder
from augury.core.graph.graph import NONE, UNRESOLVED_WAIT, Graph
from augury.core.ledger import Severity
from augury.core.trace.trace import Trace


def has_device(trace: Trace) -> bool:
    return bool((trace.streams.kind == StreamKind.DEVICE).any())


def build_device(trace: Trace) -> Graph:
    """Raises InputError where no step was recorded."""
    trace = join_windows(trace)
    ranks = _device_ranks(trace)
    builder = GraphBuilder(meta={"source": "recorded on devices"})
    hosts = {facts.rank: facts.host for facts in trace.ranks}
    for own in ranks:
        builder.rank(host=hosts[own.rank])
    for anomaly in trace.ledger:
        builder.ledger.add(anomaly)
    _DeviceGraph(builder, trace, ranks).add()
    return builder.build()


def _device_ranks(trace: Trace) -> list[DeviceRank]:
    steps = trace.steps
    watched = watched_steps(trace)
    if not len(watched):
        raise InputError("the run has no recorded step", remedy="record a window within the job")
    return [
        DeviceRank.of(trace, rank, row, watched[steps.rank[watched] == rank])
        for row, rank in enumerate(np.unique(steps.rank[watched]).tolist())
    ]


class _DeviceGraph:
    def __init__(self, builder: GraphBuilder, trace: Trace, ranks: list[DeviceRank]) -> None:
        self._builder, self._trace, self._ranks = builder, trace, ranks
        self._strings = GraphStrings(trace, builder)
        self._begin_ns = min(own.origin_ns for own in ranks)
        self._threads = {own.rank: host_threads(own) for own in ranks}
        self._is_synchronized = is_synchronized(ranks, self._threads)
        self._op_of = np.full(len(trace.events) + 1, NONE, dtype=np.int64)
        """Operation of each event; the last entry stands for no event."""
        self._starts: dict[int, int] = {}
        """Operation before all others of each rank."""

    def add(self) -> None:
        kernels = [stream for own in self._ranks for stream in own.streams]
        collectives = device_collectives(
            self._trace, np.concatenate([*kernels, np.empty(0, np.int64)])
        )
        for own in self._ranks:
            self._add_rank(own, collectives)
        self._add_missing_ranks(collectives)
        add_measured(self._builder, self._trace, self._ranks, is_synchronized=self._is_synchronized)

    def _add_rank(self, own: DeviceRank, collectives: DeviceCollectives) -> None:
        builder = self._builder
        start = self._starts[own.rank] = builder.op(
            "not begun yet",
            kind=OpKind.DELAY,
            rank=own.row,
            work_ns=own.origin_ns - self._begin_ns,
            step=NONE,
        )
        threads = self._threads[own.rank]
        step_end = OpKind.STEP_END if self._is_synchronized else OpKind.MARK
        added = [
            add_thread(builder, self._strings, own, thread, start, step_end=step_end)
            for thread in threads
        ]
        for thread, ops in zip(threads, added, strict=True):
            is_call = thread.entry >= 0
            self._op_of[thread.entry[is_call]] = ops.launch_op[is_call]
        add_memory(builder, self._strings, own, threads, added)
        event_waits = waits_for_events(own)
        streams = [
            add_kernels(
                builder,
                self._strings,
                own,
                stream,
                collectives,
                self._op_of,
                self._begin_ns,
                event_waits,
            )
            for stream in own.streams
        ]
        for stream in streams:
            self._op_of[stream.kernels] = stream.op
        for thread, ops in zip(threads, added, strict=True):
            self._wait_for(thread.awaited, ops.last_op)
            for j, other in enumerate(threads):
                self._hand_over(thread, ops.last_op, j, other, added[j].last_op)
        for stream in streams:
            for awaited in stream.awaited:
                self._wait_for(awaited, stream.first_op)
        if not threads:
            add_bare_steps(builder, own, start)
        elif not self._is_synchronized:
            add_step_ends(builder, own, threads[0], added[0].last_op, streams)

    def _wait_for(self, awaited: I8, op: I8) -> None:
        """Makes each of ``op`` wait for the event beside it."""
        known = (awaited != NONE) & (self._op_of[awaited] != NONE)
        self._builder.edges(self._op_of[awaited[known]], op[known])

    def _hand_over(
        self, thread: HostThread, op: I8, number: int, other: HostThread, other_op: I8
    ) -> None:
        """Makes a thread go on when thread ``number`` has finished."""
        waits = np.flatnonzero(thread.handed_by == number)
        pauses = np.flatnonzero(other.entry == PAUSE)
        place = np.searchsorted(other.start_ns[pauses], thread.start_ns[waits])
        self._builder.edges(other_op[pauses[place]], op[waits])

    def _add_missing_ranks(self, collectives: DeviceCollectives) -> None:
        """Adds the time until ranks that were not recorded were ready."""
        rows, events = collectives.waiting, self._trace.events
        if not len(rows):
            return
        rank = events.rank[rows]
        of_rank = {own.rank: own for own in self._ranks}
        own = [of_rank[each] for each in rank.tolist()]
        before = collectives.before
        has_before = before != NONE
        since_ns = np.where(
            has_before,
            events.start_ns[before] + events.dur_ns[before],
            np.array([each.origin_ns for each in own]),
        )
        first = self._builder.ops(
            np.full(len(rows), self._builder.string("ranks without a record")),
            kind=OpKind.DELAY,
            rank=np.array([each.row for each in own]),
            work_ns=np.maximum(collectives.ready_ns - since_ns, 0),
            step=events.step[rows],
        )
        op = np.arange(first, first + len(rows))
        starts = np.array([self._starts[each] for each in rank.tolist()])
        self._builder.edges(np.where(has_before, self._op_of[before], starts), op)
        self._builder.edges(op, self._op_of[rows])
        total_ns = sum(int((own.step_end_ns - own.step_start_ns).sum()) for own in self._ranks)
        share = float(collectives.wait_ns.sum()) / max(1, total_ns)
        self._builder.note_meta(UNRESOLVED_WAIT, f"{min(1.0, share):.6f}")
        self._builder.ledger.note(
            "unresolved-wait",
            "a collective waited for a rank that was not recorded",
            severity=Severity.INFO if share < 0.02 else Severity.WARNING,
            count=len(rows),
            remedy="record all ranks; the wait is kept as it was, whatever the change",
            example=f"{100 * share:.1f} % of the steps",
        )
