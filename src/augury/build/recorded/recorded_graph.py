"""Graphs of recorded runs: the timed steps of all ranks, with interference divided out.

Replaying the graph unchanged reproduces the recorded times.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict

import numpy as np

from augury.build.recorded.device.device_graph import build_device, has_device
from augury.build.recorded.interference import (
    SMALL_BYTES,
    communication_cpu_ns,
    compute_rate,
    compute_work_ns,
    overcommitment,
    transfer_rate,
    transfer_work_ns,
)
from augury.build.recorded.measured_steps import add_measured
from augury.build.recorded.pick_ups import PickUps
from augury.build.recorded.recorded_collectives import RecordedCollective, first_halves
from augury.build.recorded.recorded_memory import add_memory
from augury.build.recorded.recorded_run import Place, RecordedRun, recorded_run
from augury.build.recorded.table.table_graph import build_table, has_coarse_operations
from augury.core.enums import Discipline, OpKind, ResourceKind
from augury.core.graph.builder import GraphBuilder
from augury.core.graph.graph import COMMUNICATION_CPU, NONE, Graph
from augury.core.time_intervals import Interval, IntervalSet
from augury.core.trace.trace import Trace


def build_recorded(trace: Trace) -> Graph:
    """Raises InputError where no step was timed."""
    if has_coarse_operations(trace):
        return build_table(trace)
    return build_device(trace) if has_device(trace) else graph_of(recorded_run(trace))


def graph_of(run: RecordedRun) -> Graph:
    """Returns the graph of a run whose compute ran on the ranks' main threads."""
    return _RecordedGraph(run).graph()


class _RecordedGraph:
    def __init__(self, run: RecordedRun) -> None:
        self._run, self._trace = run, run.trace
        self._ranks, self._steps = run.ranks, run.steps
        self._collectives, self._segments = run.collectives, run.segments
        cpu_ns = communication_cpu_ns(self._trace, self._ranks)
        known = {COMMUNICATION_CPU: " ".join(map(str, cpu_ns))} if cpu_ns else {}
        self._builder = GraphBuilder(meta={"source": "recorded", **known})
        self._row_of = {rank: row for row, rank in enumerate(self._ranks)}
        self._pick_ups = PickUps(run)
        self._op_of_segment: dict[Place, list[int]] = {}
        self._ops_of_thread: dict[int, list[int]] = {rank: [] for rank in self._ranks}
        self._step_starts: dict[int, list[tuple[int, int, int]]] = {
            rank: [] for rank in self._ranks
        }
        """By rank: the start of each step, its number, and the number of operations before it."""
        self._first_waits: dict[int, dict[int, int]] = {rank: {} for rank in self._ranks}
        """By rank and collective: the number of operations before the first that waits for it."""

    def graph(self) -> Graph:
        computing = {
            rank: [
                (segment.start_ns, segment.end_ns)
                for step in self._steps
                for segment in self._segments[rank, step]
            ]
            for rank in self._ranks
        }
        communicating: dict[int, list[Interval]] = {rank: [] for rank in self._ranks}
        for key, one in enumerate(self._collectives):
            for rank in one.rows:
                communicating[rank].append(self._transfer(key))
        rates, during_compute = self._rates(computing, communicating)
        works = self._transfer_work(computing, during_compute)
        builder = self._builder
        hosts = {facts.rank: facts.host for facts in self._trace.ranks}
        for rank in self._ranks:
            builder.rank(host=hosts.get(rank, ""))
        compute = {
            rank: builder.resource("main thread", rank=self._row_of[rank]) for rank in self._ranks
        }
        for rank in self._ranks:
            self._add_main_thread(
                rank, compute[rank], IntervalSet(communicating[rank]), rates[rank]
            )
        streams = self._add_collectives(works)
        for (rank, _group), stream in streams.items():
            if rates[rank] < 1:
                builder.interfere(victim=compute[rank], aggressor=stream, rate=rates[rank])
            if during_compute < 1:
                builder.interfere(victim=stream, aggressor=compute[rank], rate=during_compute)
        add_memory(builder, self._run, self._row_of, self._op_of_segment)
        add_measured(builder, self._run, self._row_of)
        for anomaly in self._trace.ledger:
            builder.ledger.add(anomaly)
        return builder.build()

    def _rates(
        self, computing: dict[int, list[Interval]], communicating: dict[int, list[Interval]]
    ) -> tuple[dict[int, float], float]:
        """Returns the rate of each rank's compute during communication, and the rate of
        communication during compute."""
        trace, transfer = self._trace, transfer_rate(self._trace)
        works = self._transfer_work(computing, transfer)
        transfer_ns = {
            rank: sum(
                work for work, one in zip(works, self._collectives, strict=True) if rank in one.rows
            )
            for rank in self._ranks
        }
        compute = {
            rank: compute_rate(
                trace,
                rank,
                computing=computing[rank],
                communicating=communicating[rank],
                transfer_ns=transfer_ns[rank],
                transfer_rate=transfer,
            )
            for rank in self._ranks
        }
        excess = max(
            overcommitment(
                trace, rank, compute=rate, transfer=transfer, transfer_ns=transfer_ns[rank]
            )
            for rank, rate in compute.items()
        )
        return {rank: rate / excess for rank, rate in compute.items()}, transfer / excess

    def _add_main_thread(
        self, rank: int, resource: int, communicating: IntervalSet, rate: float
    ) -> None:
        """Adds the segments of a rank's main thread, one after the other."""
        before: list[int] = []
        for step in self._steps:
            segments = self._segments[rank, step]
            work = compute_work_ns(
                np.array([segment.start_ns for segment in segments], dtype=np.int64),
                np.array([segment.end_ns for segment in segments], dtype=np.int64),
                communicating,
                rate,
            )
            ops = self._op_of_segment[rank, step] = []
            thread = self._ops_of_thread[rank]
            if segments:
                self._step_starts[rank].append((segments[0].start_ns, step, len(thread)))
            for segment, work_ns in zip(segments, work.tolist(), strict=True):
                for key in segment.waits_for:
                    self._first_waits[rank].setdefault(key, len(thread))
                op = self._builder.op(
                    segment.name,
                    kind=segment.kind,
                    rank=self._row_of[rank],
                    # Operations without work occupy no resource.
                    resource=resource if work_ns else NONE,
                    work_ns=work_ns,
                    size_bytes=segment.size_bytes,
                    layer=segment.layer or None,
                    step=step,
                    after=before,
                )
                ops.append(op)
                thread.append(op)
                before = [op]

    def _add_collectives(self, works: list[int]) -> dict[tuple[int, int], int]:
        """Adds all collectives with the waits for them. Returns the streams by rank and group."""
        streams: dict[tuple[int, int], int] = {}
        op_of: dict[tuple[int, int], int] = {}
        called: dict[tuple[int, int], int | None] = {}
        first_half_of = first_halves(self._trace, self._collectives)
        for key, one in enumerate(self._collectives):
            if key not in self._run.counts_with:
                continue
            gang = self._builder.gang() if len(one.rows) > 1 else NONE
            for rank in sorted(one.rows):
                place = rank, one.group
                if place not in streams:
                    streams[place] = self._builder.shared_resource(
                        f"communication, group {one.group}",
                        rank=self._row_of[rank],
                        kind=ResourceKind.COMMUNICATION,
                        width=self._run.concurrent[one.group],
                        discipline=Discipline.FIFO,
                    )
                delay_ns = self._pick_ups.delay_ns(key, rank)
                first = first_half_of.get(key, NONE)
                launch = op_of.get((first, rank))
                if launch is None:
                    launch = self._launched_by(key, one, rank)
                else:
                    ended_ns = self._collectives[first].end_ns[rank]
                    delay_ns += max(0, one.arrival_ns[rank] - ended_ns)
                picked_up = self._add_delay(key, rank, delay_ns, "picked up", launch)
                begun = self._in_turn(key, rank, called.get(place), picked_up)
                if self._run.concurrent[one.group] == 1 or self._keeps_its_turn(key):
                    called[place] = begun
                member = self._builder.op(
                    one.name,
                    kind=one.kind,
                    rank=self._row_of[rank],
                    resource=streams[place],
                    work_ns=works[key],
                    size_bytes=one.size_bytes,
                    gang=gang,
                    step=self._run.counts_with[key],
                    after=[] if begun is None else [begun],
                )
                rest_ns = one.end_ns[rank] - one.done_ns
                rest = self._add_delay(key, rank, rest_ns, "ended here", member)
                op_of[key, rank] = member if rest is None else rest
        for (rank, step), segments in self._segments.items():
            for segment, op in zip(segments, self._op_of_segment[rank, step], strict=True):
                for key in segment.waits_for:
                    # The receiver of a message is not one of its members.
                    member = rank if (key, rank) in op_of else min(self._collectives[key].rows)
                    self._builder.edge(op_of[key, member], op)
            self._add_gradients(rank, step, op_of)
        return streams

    def _in_turn(
        self, key: int, rank: int, before: int | None, picked_up: int | None
    ) -> int | None:
        """Returns the operation after which a collective may begin. The threads of a group take
        collectives in the order of their calls, on all ranks alike: one that is picked up late
        delays those called later. Different orders would deadlock. Buckets are ordered already."""
        one = self._collectives[key]
        has_threads_left = self._run.concurrent[one.group] > 1
        if one.is_message or (has_threads_left and not self._keeps_its_turn(key)):
            return picked_up
        if before is None or before == picked_up:
            return picked_up
        if picked_up is None:
            return before
        return self._builder.op(
            "in turn",
            kind=OpKind.DELAY,
            rank=self._row_of[rank],
            work_ns=0,
            step=self._run.counts_with[key],
            after=[before, picked_up],
        )

    def _keeps_its_turn(self, key: int) -> bool:
        one = self._collectives[key]
        return one.is_collective and not self._run.is_reduction(key)

    def _add_delay(
        self, key: int, rank: int, work_ns: int, name: str, before: int | None
    ) -> int | None:
        """Adds the time that a single rank takes for a collective before or after all members
        progress. It is left out for buckets of gradients, which other passes replace."""
        one = self._collectives[key]
        if before is None or work_ns <= 0 or self._run.is_reduction(key):
            return before
        return self._builder.op(
            f"{one.name} {name}",
            kind=OpKind.DELAY,
            rank=self._row_of[rank],
            work_ns=work_ns,
            step=self._run.counts_with[key],
            after=[before],
        )

    def _transfer(self, key: int) -> Interval:
        """Returns the time in which the data of a collective moves. A bucket of gradients is on the
        way until its last member has it: on a link that is slow in one direction, others end much
        earlier. Other collectives leave that to the delay of each member."""
        one = self._collectives[key]
        if self._run.is_reduction(key):
            return one.begin_ns, max(one.end_ns.values())
        return one.begin_ns, one.done_ns

    def _transfer_work(self, computing: dict[int, list[Interval]], rate: float) -> list[int]:
        """Returns the work of each collective: its time on an idle link without interference."""
        of_group: dict[int, list[int]] = defaultdict(list)
        for key, one in enumerate(self._collectives):
            of_group[one.group].append(key)
        works = [0] * len(self._collectives)
        for keys in of_group.values():
            members = {rank for key in keys for rank in self._collectives[key].rows}
            spans = [self._transfer(key) for key in keys]
            busy = IntervalSet(interval for rank in members for interval in computing[rank])
            is_small = [
                0 < self._collectives[key].size_bytes < SMALL_BYTES
                and not self._run.is_reduction(key)
                for key in keys
            ]
            found = transfer_work_ns(spans, busy, rate, at_once=1, is_small=is_small)
            for key, work_ns in zip(keys, found, strict=True):
                works[key] = work_ns
        return works

    def _launched_by(self, key: int, one: RecordedCollective, rank: int) -> int | None:
        """Returns the last operation of the main thread before a collective: the one that makes the
        gradient which fills the bucket, or the last that ended before the call."""
        segments = self._segments[rank, one.step]
        ops = self._op_of_segment[rank, one.step]
        carrying = self._run.reductions.get(one.step, [])
        if key in carrying:
            wanted = self._run.buckets[rank].last_gradient(carrying.index(key))
            for segment, op in zip(segments, ops, strict=True):
                if segment.gradient == wanted:
                    return op
        num_done = self._num_done(rank, one.arrival_ns[rank])
        first_wait = self._first_waits[rank].get(key, num_done)
        # The call precedes the wait, even if time stamps disagree.
        num_done = min(num_done, first_wait)
        return self._ops_of_thread[rank][num_done - 1] if num_done else None

    def _num_done(self, rank: int, at_ns: int) -> int:
        """Returns the number of operations of the main thread, of all steps, that have ended."""
        begun = bisect_right(self._step_starts[rank], at_ns, key=lambda start: start[0]) - 1
        if begun < 0:
            return 0
        _, step, num_before = self._step_starts[rank][begun]
        return num_before + bisect_right(self._segments[rank, step], at_ns, key=lambda p: p.end_ns)

    def _add_gradients(self, rank: int, step: int, op_of: dict[tuple[int, int], int]) -> None:
        """Adds the gradients of a rank's step with the operations that make, carry and use them."""
        carrying = self._run.reductions.get(step, [])
        if not carrying:
            return
        segments, ops = self._segments[rank, step], self._op_of_segment[rank, step]
        made = {segment.gradient: op for segment, op in zip(segments, ops, strict=True)}
        copied = {
            key: op
            for segment, op in zip(segments, ops, strict=True)
            if segment.kind == OpKind.COPY
            for key in segment.waits_for
        }
        buckets = self._run.buckets[rank]
        bucket_of = {i: bucket for bucket, own in enumerate(buckets.members) for i in own}
        for i, (name, size_bytes) in enumerate(zip(buckets.names, buckets.size_bytes, strict=True)):
            key = carrying[bucket_of[i]]
            if i in made and key in copied:
                self._builder.gradient(
                    name,
                    rank=self._row_of[rank],
                    step=step,
                    size_bytes=size_bytes,
                    made_by=made[i],
                    carried_by=op_of[key, rank],
                    used_by=copied[key],
                )
