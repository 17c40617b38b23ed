"""Graphs of tables of operations: replaying one unchanged reproduces the recorded times.

The time between the last event that an operation waits for and its start is kept: as unexplained
work of the rank before compute, as a delay before communication. Members of a communication
progress together from the last start to the first end. All ranks start a step together, when the
last one has ended the step before: the time between recorded steps is unknown.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from augury.build.recorded.table.step_waits import StepWaits, step_waits
from augury.build.recorded.table.transfers import JointTransfer, Transfers, transfers
from augury.core.columns import I8
from augury.core.enums import OpKind, ResourceKind, StepState, StreamKind
from augury.core.graph.builder import UNLIMITED_WIDTH, GraphBuilder
from augury.core.graph.graph import NONE, Graph
from augury.core.time_intervals import IntervalSet
from augury.core.trace.trace import HOROVOD_TIMELINE, OPERATION_TABLE, Trace


def has_coarse_operations(trace: Trace) -> bool:
    return any(facts.framework in (OPERATION_TABLE, HOROVOD_TIMELINE) for facts in trace.ranks)


def build_table(trace: Trace) -> Graph:
    return _TableGraph(trace).graph()


@dataclass(slots=True)
class _Step:
    """A step under construction: operations of the graph by row of the trace's events."""

    number: int
    waits: StepWaits
    transfers: Transfers
    first: dict[int, int] = field(default_factory=dict)
    """The first operation of an event, which waits for others."""
    started: dict[int, int] = field(default_factory=dict)
    """The operation at whose end an event has started."""
    work: dict[int, int] = field(default_factory=dict)
    """The operation that does the work of an event, from its start."""
    last: dict[int, int] = field(default_factory=dict)
    """The operation at whose end an event has ended."""


class _TableGraph:
    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._ranks = [facts.rank for facts in trace.ranks]
        self._row_of = {rank: row for row, rank in enumerate(self._ranks)}
        self._builder = GraphBuilder(meta={"source": "recorded as a table of operations"})
        self._resources: dict[tuple[int, str], int] = {}
        self._overlaps = _overlapping_streams(trace)
        self._last_on_stream: dict[int, int] = {}

    def graph(self) -> Graph:
        builder, events, steps = self._builder, self._trace.events, self._trace.steps
        for facts in self._trace.ranks:
            builder.rank(host=facts.host)
        order = np.argsort(events.step, kind="stable")
        numbers, begin = np.unique(events.step[order], return_index=True)
        rows_of = dict(zip(numbers.tolist(), np.split(order, begin[1:]), strict=True))
        timed = steps.state == StepState.TIMED
        starts = dict(zip(steps.step[timed].tolist(), steps.start_ns[timed].tolist(), strict=True))
        boundary: list[int] = []
        for step in sorted(starts.keys() & rows_of.keys()):
            boundary = [self._add_step(step, rows_of[step], starts[step], boundary)]
        self._add_measured()
        for anomaly in self._trace.ledger:
            builder.ledger.add(anomaly)
        return builder.build()

    def _add_step(self, number: int, rows: I8, start_ns: int, boundary: list[int]) -> int:
        """Adds the operations of a step that begins after ``boundary``; returns its end."""
        waits = step_waits(self._trace, rows, start_ns)
        step = _Step(number, waits, transfers(self._trace, waits))
        begun = {rank: self._mark(step, "step begins", rank, boundary) for rank in self._ranks}
        anchors = {w.row for own in waits.waits.values() for w in own if not w.is_end}
        gang_of: dict[int, tuple[int, JointTransfer]] = {}
        for one in step.transfers.joint:
            gang_of |= dict.fromkeys(one.rows, (self._builder.gang(), one))
        self._builder.ledger.note(
            "implausible-match",
            "a member of a communication did not overlap with the others in time: it is replayed"
            " on its own",
            count=step.transfers.num_implausible,
            remedy="check the clocks of the ranks",
        )
        for row in waits.rows:
            self._add_event(step, row, gang_of.get(row), is_anchor=row in anchors)
        for row, own in waits.waits.items():
            before = {step.last[w.row] if w.is_end else step.started[w.row] for w in own}
            if not any(wait.row in waits.lane for wait in own):
                before.add(begun[int(self._trace.events.rank[row])])
            for op in before:
                self._builder.edge(op, step.first[row])
        self._keep_order(step)
        for send, receive in step.transfers.messages:
            self._builder.edge(step.last[send], step.work[receive])
        ended = self._mark(step, "step ends", self._ranks[0], [*step.last.values()])
        for rank in self._ranks[1:]:
            self._mark(step, "step ends", rank, [ended])
        return ended

    def _keep_order(self, step: _Step) -> None:
        """Keeps the order of communication on each stream, from step to step, for changes that
        remove delays or waits for communication."""
        stream_of = self._trace.events.stream
        for row in step.waits.rows:
            stream = int(stream_of[row])
            if row in step.waits.lane or stream in self._overlaps:
                continue
            if stream in self._last_on_stream:
                self._builder.edge(self._last_on_stream[stream], step.work[row])
            self._last_on_stream[stream] = step.work[row]

    def _mark(self, step: _Step, name: str, rank: int, after: list[int]) -> int:
        return self._builder.op(
            name,
            kind=OpKind.MARK,
            rank=self._row_of[rank],
            work_ns=0,
            step=step.number,
            after=after,
        )

    def _add_event(
        self, step: _Step, row: int, gang: tuple[int, JointTransfer] | None, *, is_anchor: bool
    ) -> None:
        """Adds the operations of one event: the gap before it, its work, and, on a member of a
        communication that ended later than the first, the rest."""
        events, begin_ns = self._trace.events, step.waits.begin_ns[row]
        end_ns = int(events.start_ns[row] + events.dur_ns[row])
        resource = self._resource(step, row)
        kind = OpKind(int(events.kind[row]))
        gap_ns = begin_ns - step.waits.ready_ns[row]
        ops: list[int] = []
        if gap_ns and row in step.waits.lane:
            self._append(ops, step, row, "unexplained", OpKind.UNEXPLAINED, gap_ns, resource)
        elif gap_ns:
            self._append(ops, step, row, "not launched yet", OpKind.DELAY, gap_ns)
        elif is_anchor or (gang is not None and not kind.is_communication):
            self._append(ops, step, row, "started", OpKind.MARK, 0)
        step.started[row] = ops[-1] if ops else NONE
        name = self._trace.name(row)
        if gang is not None and kind.is_communication:
            number, joint = gang
            self._append(ops, step, row, name, kind, joint.work_ns, resource, number)
            step.work[row] = ops[-1]
            if end_ns > joint.end_ns:
                rest_ns = end_ns - joint.end_ns
                self._append(ops, step, row, f"{name} ends here", OpKind.DELAY, rest_ns)
        else:
            if gang is not None:
                # Compute that waits for all members: the work after that is its own.
                number, joint = gang
                begin_ns = joint.end_ns - joint.work_ns
                self._append(ops, step, row, name, OpKind.BARRIER, 0, gang=number)
            elif kind == OpKind.RECV and events.group[row] == NONE:
                kind = OpKind.DELAY  # mostly a wait for a sender that is not in the table
            elif row not in step.waits.lane and not kind.is_communication:
                kind = OpKind.DELAY  # a message that moves nothing is a pause of its stream
            self._append(ops, step, row, name, kind, max(0, end_ns - begin_ns), resource)
            step.work[row] = ops[-1]
            if gang is not None:
                # It follows the compute before even if a change removes the wait for the others.
                self._builder.edge(ops[0], ops[-1])
        step.first[row], step.last[row] = ops[0], ops[-1]

    def _append(
        self,
        ops: list[int],
        step: _Step,
        row: int,
        name: str,
        kind: OpKind,
        work_ns: int,
        resource: int = NONE,
        gang: int = NONE,
    ) -> None:
        """Appends an operation that follows the ones before it."""
        events = self._trace.events
        ops.append(
            self._builder.op(
                name,
                kind=kind,
                rank=self._row_of[int(events.rank[row])],
                # Operations without work occupy no resource.
                resource=resource if work_ns else NONE,
                work_ns=work_ns,
                layer=self._trace.strings[int(events.layer[row])] or None,
                gang=gang,
                step=step.number,
                after=ops[-1:],
            )
        )

    def _resource(self, step: _Step, row: int) -> int:
        """Returns the stream of an event; overlapping compute has several lanes."""
        stream = int(self._trace.events.stream[row])
        rank, lane = int(self._trace.events.rank[row]), step.waits.lane.get(row)
        name = self._trace.strings[int(self._trace.streams.name[stream])]
        kind, width = ResourceKind.COMPUTE, 1
        if lane is None:
            kind = ResourceKind.COMMUNICATION
            width = UNLIMITED_WIDTH if stream in self._overlaps else 1
        elif lane:
            name = f"{name} {lane + 1}"
        key = rank, name
        if key not in self._resources:
            self._resources[key] = self._builder.resource(
                name, rank=self._row_of[rank], kind=kind, width=width
            )
        return self._resources[key]

    def _add_measured(self) -> None:
        """Adds the measured steps. Time in which a rank neither computed nor communicated is
        unexplained."""
        events, steps = self._trace.events, self._trace.steps
        for rank in self._ranks:
            rows = self._trace.of_rank(rank)
            start_ns = events.start_ns[rows]
            end_ns = start_ns + events.dur_ns[rows]
            ran = IntervalSet(zip(start_ns.tolist(), end_ns.tolist(), strict=True))
            own = np.flatnonzero((steps.rank == rank) & (steps.end_ns > steps.start_ns))
            covered = ran.within(steps.start_ns[own], steps.end_ns[own])
            for row, explained_ns in zip(own.tolist(), covered.tolist(), strict=True):
                self._builder.measured_step(
                    rank=self._row_of[rank],
                    step=int(steps.step[row]),
                    dur_ns=int(steps.end_ns[row] - steps.start_ns[row]),
                    explained_ns=round(explained_ns),
                )


def _overlapping_streams(trace: Trace) -> set[int]:
    """Returns the communication streams on which several events were in flight at once."""
    events = trace.events
    found: set[int] = set()
    # Events are sorted by rank and stream, then by start.
    begin = np.flatnonzero(np.diff(events.stream, prepend=NONE) != 0).tolist()
    for first, last in zip(begin, [*begin[1:], len(events)], strict=True):
        own = slice(first, last)
        reached = np.maximum.accumulate(events.start_ns[own] + events.dur_ns[own])
        if (events.start_ns[own][1:] < reached[:-1]).any():
            found.add(int(events.stream[first]))
    is_communication = trace.streams.kind == StreamKind.COMMUNICATION
    return {stream for stream in found if is_communication[stream]}
