"""Graphs of runs on devices: threads launch kernels, streams run them, streams wait for streams.

Traces seldom say which stream waited for which. The dependencies of a kernel are taken from its
launch, from the kernel before it on its stream, and, if neither explains its start, from the times:
the kernel that ended on another stream just before.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict

import numpy as np

from augury.build.recorded.recorded_collectives import RecordedCollective, collectives_of
from augury.core.columns import I8
from augury.core.enums import OpKind, ResourceKind, StepState, StreamKind
from augury.core.graph.builder import GraphBuilder
from augury.core.graph.graph import NONE, Graph
from augury.core.time_intervals import IntervalSet
from augury.core.trace.trace import Trace

NEAR_NS = 30_000
"""Longest time between the end of a kernel and the start of one that waited for it."""

_RESOURCE_KIND = {
    StreamKind.MAIN_THREAD: ResourceKind.HOST,
    StreamKind.THREAD: ResourceKind.HOST,
    StreamKind.DEVICE: ResourceKind.COMPUTE,
    StreamKind.COMMUNICATION: ResourceKind.COMMUNICATION,
}


def has_device(trace: Trace) -> bool:
    return bool((trace.streams.kind == StreamKind.DEVICE).any())


def build_device(trace: Trace) -> Graph:
    return _DeviceRun(trace).graph()


class _DeviceRun:
    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        steps = trace.steps
        watched = np.isin(steps.state, [StepState.TIMED, StepState.DETAILED])
        self._ranks = sorted(set(steps.rank[watched].tolist()))
        self._row_of = {rank: row for row, rank in enumerate(self._ranks)}
        self._origin = {
            rank: int(steps.start_ns[watched & (steps.rank == rank)].min()) for rank in self._ranks
        }
        self._begin_ns = min(self._origin.values())
        self._steps = set(steps.step[watched].tolist())
        self._watched = watched
        self._collectives = collectives_of(trace, self._steps, set(self._ranks))
        self._collective_of = {
            row: key for key, own in enumerate(self._collectives) for row in own.rows.values()
        }
        self._builder = GraphBuilder(meta={"source": "recorded on devices"})
        self._op_of: dict[int, int] = {}
        self._unexplained: dict[int, int] = {}
        self._gangs: dict[int, int] = {}
        self._pending: list[tuple[int, int]] = []
        """Pairs of an event and an operation that waits for it."""

    def graph(self) -> Graph:
        builder, trace = self._builder, self._trace
        hosts = {facts.rank: facts.host for facts in trace.ranks}
        for rank in self._ranks:
            builder.rank(host=hosts[rank])
        for rank in self._ranks:
            self._add_rank(rank)
        for row, op in self._pending:
            if row in self._op_of:
                builder.edge(self._op_of[row], op)
        self._add_measured()
        for anomaly in trace.ledger:
            builder.ledger.add(anomaly)
        return builder.build()

    def _add_rank(self, rank: int) -> None:
        trace, events = self._trace, self._trace.events
        rows = np.arange(trace.of_rank(rank).start, trace.of_rank(rank).stop)
        rows = rows[np.isin(events.step[rows], list(self._steps))]
        of_stream: dict[int, list[int]] = defaultdict(list)
        for row in rows[np.argsort(events.start_ns[rows], kind="stable")].tolist():
            of_stream[int(events.stream[row])].append(row)
        device = [s for s in of_stream if self._runs_kernels(s)]
        ends = sorted((self._end(row), row) for stream in device for row in of_stream[stream])
        self._note_unexplained(rank, rows)
        start = self._delay(rank, self._origin[rank] - self._begin_ns)
        for stream, own in of_stream.items():
            if stream not in device:
                self._add_thread(rank, stream, own, ends, start)
        for stream in device:
            self._add_kernels(rank, stream, of_stream[stream], ends)

    def _note_unexplained(self, rank: int, rows: I8) -> None:
        """Notes the time of a rank's steps in which neither a thread nor a device ran anything
        recorded. Gaps on a thread while a device works delay nothing."""
        events, steps = self._trace.events, self._trace.steps
        ran = IntervalSet(
            zip(
                events.start_ns[rows].tolist(),
                (events.start_ns[rows] + events.dur_ns[rows]).tolist(),
                strict=True,
            )
        )
        own = self._watched & (steps.rank == rank)
        covered = ran.within(steps.start_ns[own], steps.end_ns[own])
        self._unexplained[rank] = round(
            float((steps.end_ns[own] - steps.start_ns[own] - covered).sum())
        )

    def _runs_kernels(self, stream: int) -> bool:
        return int(self._trace.streams.kind[stream]) in (
            StreamKind.DEVICE,
            StreamKind.COMMUNICATION,
        )

    def _end(self, row: int) -> int:
        return int(self._trace.events.start_ns[row] + self._trace.events.dur_ns[row])

    def _delay(self, rank: int, work_ns: int) -> int:
        return self._builder.op(
            "not begun yet", kind=OpKind.DELAY, rank=self._row_of[rank], work_ns=work_ns, step=NONE
        )

    def _add_thread(
        self, rank: int, stream: int, rows: list[int], ends: list[tuple[int, int]], start: int
    ) -> None:
        """Adds the calls of the device's driver in their order, and between them the time of the
        program: known as far as recorded operations cover it, unexplained otherwise."""
        events, builder = self._trace.events, self._builder
        calls = [row for row in rows if int(events.kind[row]) in (OpKind.LAUNCH, OpKind.SYNC)]
        if not calls:
            return
        resource = builder.resource(
            self._stream_name(stream), rank=self._row_of[rank], kind=ResourceKind.HOST
        )
        free_ns, begin_ns, done_ns = self._call_times(rank, np.array(calls))
        known_ns = self._known_between(rows, free_ns, begin_ns)
        before = start
        for row, at_ns, start_ns, end_ns, own_ns in zip(
            calls,
            free_ns.tolist(),
            begin_ns.tolist(),
            done_ns.tolist(),
            known_ns.tolist(),
            strict=True,
        ):
            before = self._add_own_time(rank, row, resource, own_ns, start_ns - at_ns, before)
            kernel = self._waited_for(row, ends)
            own_launch = kernel is not None and int(events.cause[kernel]) == row
            if own_launch:
                # The call launches the kernel, then waits for it.
                until_ns = min(max(int(events.start_ns[kernel]), start_ns), end_ns)
                before = self._add_call(rank, row, resource, until_ns - start_ns, before)
                self._op_of[row] = before
            ended_ns = start_ns if kernel is None else self._end(kernel)
            before = self._add_call(rank, row, resource, end_ns - max(start_ns, ended_ns), before)
            self._op_of.setdefault(row, before)
            if kernel is not None:
                self._pending.append((kernel, before))

    def _add_call(self, rank: int, row: int, resource: int, work_ns: int, before: int) -> int:
        return self._builder.op(
            self._trace.name(row),
            kind=OpKind(int(self._trace.events.kind[row])),
            rank=self._row_of[rank],
            resource=resource if work_ns > 0 else NONE,
            work_ns=max(0, work_ns),
            step=int(self._trace.events.step[row]),
            after=[before],
        )

    def _call_times(self, rank: int, calls: I8) -> tuple[I8, I8, I8]:
        """Returns, for each call of a thread, when the thread was free, when the call began and
        when it ended. Calls do not overlap: one begins when the one before has ended."""
        events = self._trace.events
        start_ns = events.start_ns[calls]
        reached = np.maximum.accumulate(start_ns + events.dur_ns[calls])
        until_ns = np.maximum(reached, self._origin[rank])
        free_ns = np.concatenate([[self._origin[rank]], until_ns[:-1]])
        return free_ns, np.maximum(start_ns, free_ns), until_ns

    def _known_between(self, rows: list[int], begin_ns: I8, end_ns: I8) -> I8:
        """Returns how much of each time between two others the recorded operations cover."""
        events = self._trace.events
        start_ns = events.start_ns[rows]
        reached = np.maximum.accumulate(start_ns + events.dur_ns[rows])
        before = np.maximum(np.concatenate([[0], reached[:-1]]), 0)
        adds = reached > before
        first, last = np.maximum(start_ns, before)[adds], reached[adds]
        spent = np.cumsum(last - first)
        times = np.concatenate([[0], np.column_stack([first, last]).reshape(-1)])
        covered = np.column_stack([spent - (last - first), spent]).reshape(-1)
        covered = np.concatenate([[0], covered])
        within = np.interp(end_ns, times, covered) - np.interp(begin_ns, times, covered)
        return np.asarray(np.rint(within), dtype=np.int64)

    def _add_own_time(
        self, rank: int, row: int, resource: int, known_ns: int, dur_ns: int, before: int
    ) -> int:
        """Adds the time of the program before a call and returns its last operation."""
        if dur_ns <= 0:
            return before
        events = self._trace.events
        parent = int(events.parent[row])
        for name, kind, work_ns in (
            (
                self._trace.name(parent) if parent != NONE else "program",
                self._kind(parent if parent != NONE else row),
                known_ns,
            ),
            ("unexplained", OpKind.UNEXPLAINED, dur_ns - known_ns),
        ):
            if work_ns <= 0:
                continue
            before = self._builder.op(
                name,
                kind=kind,
                rank=self._row_of[rank],
                resource=resource,
                work_ns=work_ns,
                step=int(events.step[row]),
                after=[before],
            )
        return before

    def _kind(self, row: int) -> OpKind:
        kind = OpKind(int(self._trace.events.kind[row]))
        return OpKind.OTHER if kind in (OpKind.LAUNCH, OpKind.SYNC) else kind

    def _waited_for(self, row: int, ends: list[tuple[int, int]]) -> int | None:
        """Returns the kernel whose end let a blocking call return: any kernel for a synchronizing
        call, its own copy for a blocking copy."""
        name = self._trace.name(row).lower()
        if "memcpy" not in name and "synchronize" not in name:
            return None
        start_ns = int(self._trace.events.start_ns[row])
        place = bisect_right(ends, (self._end(row), 1 << 60)) - 1
        while place >= 0 and ends[place][0] > start_ns:
            kernel = ends[place][1]
            cause = int(self._trace.events.cause[kernel])
            was_launched = cause == NONE or int(self._trace.events.start_ns[cause]) < start_ns
            if cause == row or ("synchronize" in name and was_launched):
                return kernel
            place -= 1
        return None

    def _add_kernels(
        self, rank: int, stream: int, rows: list[int], ends: list[tuple[int, int]]
    ) -> None:
        events, builder = self._trace.events, self._builder
        kind = StreamKind(int(self._trace.streams.kind[stream]))
        resource = builder.resource(
            self._stream_name(stream), rank=self._row_of[rank], kind=_RESOURCE_KIND[kind]
        )
        before: int | None = None
        for row in rows:
            after = [] if before is None else [self._op_of[before]]
            launch = self._op_of.get(int(events.cause[row]))
            if launch is not None:
                after.append(launch)
            start_ns = int(events.start_ns[row])
            if not after:
                after.append(self._delay(rank, max(0, start_ns - self._begin_ns)))
            collective = self._collective_of.get(row)
            work_ns = int(events.dur_ns[row])
            if collective is not None:
                work_ns = self._transfer_ns(self._collectives[collective])
            self._op_of[row] = builder.op(
                self._trace.name(row),
                kind=self._kind(row),
                rank=self._row_of[rank],
                resource=resource if work_ns else NONE,
                work_ns=work_ns,
                size_bytes=max(0, self._size(row, collective)),
                layer=self._trace.strings[int(events.layer[row])] or None,
                gang=self._gang(collective),
                step=int(events.step[row]),
                after=after,
            )
            self._find_cause(row, before, stream, ends)
            before = row

    def _find_cause(
        self, row: int, before: int | None, stream: int, ends: list[tuple[int, int]]
    ) -> None:
        """Adds a dependency on the kernel that ended last on another stream, if neither the launch
        nor the previous kernel of the stream explains the start."""
        events = self._trace.events
        start_ns = int(events.start_ns[row])
        cause = int(events.cause[row])
        known = [self._end(before)] if before is not None else []
        known += [self._end(cause)] if cause in self._op_of else []
        if known and start_ns - max(known) <= NEAR_NS // 3:
            return
        place = bisect_right(ends, (start_ns, 1 << 60)) - 1
        while place >= 0 and start_ns - ends[place][0] <= NEAR_NS:
            other = ends[place][1]
            if int(events.stream[other]) != stream and other != row:
                self._pending.append((other, self._op_of[row]))
                return
            place -= 1

    def _gang(self, collective: int | None) -> int:
        if collective is None or len(self._collectives[collective].rows) < 2:
            return NONE
        if collective not in self._gangs:
            self._gangs[collective] = self._builder.gang()
        return self._gangs[collective]

    def _transfer_ns(self, collective: RecordedCollective) -> int:
        """Returns the duration of the shortest kernel: longer ones include the wait for the last
        rank."""
        return min(collective.end_ns[rank] - collective.start_ns[rank] for rank in collective.rows)

    def _size(self, row: int, collective: int | None) -> int:
        if collective is not None:
            return self._collectives[collective].size_bytes
        return int(self._trace.events.size_bytes[row])

    def _stream_name(self, stream: int) -> str:
        return self._trace.strings[int(self._trace.streams.name[stream])]

    def _add_measured(self) -> None:
        steps = self._trace.steps
        total: dict[int, int] = defaultdict(int)
        rows = np.flatnonzero(self._watched).tolist()
        for row in rows:
            total[int(steps.rank[row])] += int(steps.end_ns[row] - steps.start_ns[row])
        for row in rows:
            rank, dur_ns = int(steps.rank[row]), int(steps.end_ns[row] - steps.start_ns[row])
            share = min(1.0, self._unexplained[rank] / max(1, total[rank]))
            if dur_ns > 0:
                self._builder.measured_step(
                    rank=self._row_of[rank],
                    step=int(steps.step[row]),
                    dur_ns=dur_ns,
                    explained_ns=round(dur_ns * (1 - share)),
                )
