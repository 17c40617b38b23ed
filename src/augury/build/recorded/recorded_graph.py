"""Trace -> Graph: the timed steps of a recorded run, on all ranks, with the time that each thing
would take undisturbed, so that replaying the graph unchanged gives the recorded times again."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict

import numpy as np

from augury.build.recorded.ddp_buckets import buckets_of, reductions
from augury.build.recorded.detail_window import detail_of
from augury.build.recorded.device_streams import build_device, has_device
from augury.build.recorded.interference import (
    compute_rate,
    compute_work_ns,
    overcommitment,
    transfer_rate,
    transfer_work_ns,
)
from augury.build.recorded.main_thread import step_pieces
from augury.build.recorded.recorded_collectives import (
    RecordedCollective,
    awaited_of,
    exchanges_of,
    second_halves,
    transfers_at_once,
)
from augury.build.recorded.thread_segments import ThreadSegment
from augury.core.enums import Discipline, MemoryKind, OpKind, ResourceKind, StepState
from augury.core.errors import InputError
from augury.core.graph.builder import GraphBuilder
from augury.core.graph.graph import NONE, Graph
from augury.core.measured_step import counted_rows
from augury.core.time_intervals import Interval, IntervalSet
from augury.core.trace.trace import Trace


def build_recorded(trace: Trace) -> Graph:
    """Raises InputError where no step was timed."""
    return build_device(trace) if has_device(trace) else RecordedGraph(trace).graph()


class RecordedGraph:
    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._ranks, self._steps = _timed(trace)
        self._exchanges = exchanges_of(trace, set(self._steps), set(self._ranks))
        self._at_once = transfers_at_once(self._exchanges)
        self._buckets = {rank: buckets_of(trace, rank) for rank in self._ranks}
        self._reductions = reductions(self._exchanges, self._buckets)
        self._detail = {
            rank: detail_of(trace, rank, num_gradients=len(self._buckets[rank].names))
            for rank in self._ranks
        }
        self._pieces = self._all_pieces()
        self._counts_with = self._steps_that_wait()
        self._builder = GraphBuilder(meta={"source": "recorded"})
        self._row_of = {rank: row for row, rank in enumerate(self._ranks)}
        self._op_of_piece: dict[tuple[int, int], list[int]] = {}
        self._ops_of_thread: dict[int, list[int]] = {rank: [] for rank in self._ranks}
        self._step_starts: dict[int, list[tuple[int, int, int]]] = {
            rank: [] for rank in self._ranks
        }
        """By rank: when each step began, its number, and how many operations came before it."""
        self._first_waits: dict[int, dict[int, int]] = {rank: {} for rank in self._ranks}
        """By rank and exchange: how many operations came before the first that waits for it."""

    def graph(self) -> Graph:
        computing = {
            rank: [
                (piece.start_ns, piece.end_ns)
                for step in self._steps
                for piece in self._pieces[rank, step]
            ]
            for rank in self._ranks
        }
        communicating: dict[int, list[Interval]] = {rank: [] for rank in self._ranks}
        for exchange in self._exchanges:
            for rank in exchange.rows:
                communicating[rank].append((exchange.begin_ns, exchange.done_ns))
        rates, beside_compute = self._rates(computing, communicating)
        works = self._transfer_work(computing, beside_compute)
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
        streams = self._add_exchanges(works)
        for (rank, _group), stream in streams.items():
            if rates[rank] < 1:
                builder.interfere(victim=compute[rank], aggressor=stream, rate=rates[rank])
            if beside_compute < 1:
                builder.interfere(victim=stream, aggressor=compute[rank], rate=beside_compute)
        self._add_memory()
        self._add_measured()
        for anomaly in self._trace.ledger:
            builder.ledger.add(anomaly)
        return builder.build()

    def _rates(
        self, computing: dict[int, list[Interval]], communicating: dict[int, list[Interval]]
    ) -> tuple[dict[int, float], float]:
        """Of every rank's compute beside communication, and of communication beside compute."""
        trace, transfer = self._trace, transfer_rate(self._trace)
        works = self._transfer_work(computing, transfer)
        transfer_ns = {
            rank: sum(
                work
                for work, exchange in zip(works, self._exchanges, strict=True)
                if rank in exchange.rows
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

    def _all_pieces(self) -> dict[tuple[int, int], list[ThreadSegment]]:
        of_place: dict[tuple[int, int], dict[int, RecordedCollective]] = defaultdict(dict)
        for key, exchange in enumerate(self._exchanges):
            for rank in exchange.rows:
                of_place[rank, exchange.step][key] = exchange
        awaited = awaited_of(self._trace, self._exchanges, self._steps)
        return {
            (rank, step): step_pieces(
                self._trace,
                rank,
                step,
                detail=self._detail[rank],
                buckets=self._buckets[rank],
                exchanges=of_place[rank, step],
                reductions=self._reductions.get(step, []),
                awaited=awaited,
            )
            for rank in self._ranks
            for step in self._steps
        }

    def _steps_that_wait(self) -> dict[int, int]:
        """By exchange, the step that it counts with: the last that waits for it, else its own.
        Without those that were only awaited when the window was over: no step depends on them."""
        last: dict[int, int] = {}
        for (_, step), pieces in self._pieces.items():
            for piece in pieces:
                for key in piece.waits_for:
                    last[key] = max(step, last.get(key, step))
        events = self._trace.events
        waits = (events.kind == OpKind.SYNC) & (events.group != NONE)
        seen = {*zip(events.group[waits].tolist(), events.sequence[waits].tolist(), strict=True)}
        return {
            key: max(exchange.step, last.get(key, exchange.step))
            for key, exchange in enumerate(self._exchanges)
            if key in last or (exchange.group, exchange.sequence) not in seen
        }

    def _add_main_thread(
        self, rank: int, resource: int, communicating: IntervalSet, rate: float
    ) -> None:
        before: list[int] = []
        for step in self._steps:
            pieces = self._pieces[rank, step]
            work = compute_work_ns(
                np.array([piece.start_ns for piece in pieces], dtype=np.int64),
                np.array([piece.end_ns for piece in pieces], dtype=np.int64),
                communicating,
                rate,
            )
            ops = self._op_of_piece[rank, step] = []
            thread = self._ops_of_thread[rank]
            if pieces:
                self._step_starts[rank].append((pieces[0].start_ns, step, len(thread)))
            for piece, work_ns in zip(pieces, work.tolist(), strict=True):
                for key in piece.waits_for:
                    self._first_waits[rank].setdefault(key, len(thread))
                op = self._builder.op(
                    piece.name,
                    kind=piece.kind,
                    rank=self._row_of[rank],
                    # What takes no time holds no place.
                    resource=resource if work_ns else NONE,
                    work_ns=work_ns,
                    size_bytes=piece.size_bytes,
                    layer=piece.layer or None,
                    step=step,
                    after=before,
                )
                ops.append(op)
                thread.append(op)
                before = [op]

    def _add_exchanges(self, works: list[int]) -> dict[tuple[int, int], int]:
        streams: dict[tuple[int, int], int] = {}
        op_of: dict[tuple[int, int], int] = {}
        called: dict[tuple[int, int], int | None] = {}
        first_half_of = second_halves(self._trace, self._exchanges)
        for key, exchange in enumerate(self._exchanges):
            if key not in self._counts_with:
                continue
            gang = self._builder.gang() if len(exchange.rows) > 1 else NONE
            for rank in sorted(exchange.rows):
                place = rank, exchange.group
                if place not in streams:
                    streams[place] = self._builder.shared_resource(
                        f"communication, group {exchange.group}",
                        rank=self._row_of[rank],
                        kind=ResourceKind.COMMUNICATION,
                        width=self._at_once[exchange.group],
                        discipline=Discipline.FIFO,
                    )
                delay_ns = self._picked_up_ns(exchange, rank)
                first = first_half_of.get(key, NONE)
                launch = op_of.get((first, rank))
                if launch is None:
                    launch = self._launched_by(key, exchange, rank)
                else:
                    ended_ns = self._exchanges[first].end_ns[rank]
                    delay_ns += max(0, exchange.arrival_ns[rank] - ended_ns)
                picked_up = self._add_delay(key, rank, delay_ns, "picked up", launch)
                begun = self._in_turn(key, rank, called.get(place), picked_up)
                if self._at_once[exchange.group] == 1 or self._keeps_its_turn(key):
                    called[place] = begun
                member = self._builder.op(
                    exchange.name,
                    kind=exchange.kind,
                    rank=self._row_of[rank],
                    resource=streams[place],
                    work_ns=works[key],
                    size_bytes=exchange.size_bytes,
                    gang=gang,
                    step=self._counts_with[key],
                    after=[] if begun is None else [begun],
                )
                rest_ns = exchange.end_ns[rank] - exchange.done_ns
                rest = self._add_delay(key, rank, rest_ns, "ended here", member)
                op_of[key, rank] = member if rest is None else rest
        for (rank, step), pieces in self._pieces.items():
            for piece, op in zip(pieces, self._op_of_piece[rank, step], strict=True):
                for key in piece.waits_for:
                    # The receiver of a message is none of its members.
                    member = rank if (key, rank) in op_of else min(self._exchanges[key].rows)
                    self._builder.edge(op_of[key, member], op)
            self._add_gradients(rank, step, op_of)
        return streams

    def _in_turn(
        self, key: int, rank: int, before: int | None, picked_up: int | None
    ) -> int | None:
        """Threads of a group take collectives in the order in which they were asked for, on all
        ranks alike: who is picked up late holds up who was called for later. Ranks that took them
        in different orders would wait for each other for ever. DDP's buckets have an order
        already."""
        exchange = self._exchanges[key]
        has_threads_left = self._at_once[exchange.group] > 1
        if exchange.is_message or (has_threads_left and not self._keeps_its_turn(key)):
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
            step=self._counts_with[key],
            after=[before, picked_up],
        )

    def _keeps_its_turn(self, key: int) -> bool:
        exchange = self._exchanges[key]
        return exchange.is_collective and key not in self._reductions.get(exchange.step, [])

    def _add_delay(
        self, key: int, rank: int, work_ns: int, name: str, before: int | None
    ) -> int | None:
        """What single ranks take for a collective before and after all of them progress: they do
        not end at the same moment. Of DDP's buckets, which change, it is left out."""
        exchange = self._exchanges[key]
        if before is None or work_ns <= 0 or key in self._reductions.get(exchange.step, []):
            return before
        return self._builder.op(
            f"{exchange.name} {name}",
            kind=OpKind.DELAY,
            rank=self._row_of[rank],
            work_ns=work_ns,
            step=self._counts_with[key],
            after=[before],
        )

    def _picked_up_ns(self, exchange: RecordedCollective, rank: int) -> int:
        """From the call to the start, unless the threads that do it were busy with others."""
        called_ns, start_ns = exchange.arrival_ns[rank], exchange.start_ns[rank]
        others = [
            other
            for other in self._exchanges
            if other is not exchange
            and other.step == exchange.step
            and other.group == exchange.group
            and rank in other.rows
        ]
        if self._at_once[exchange.group] == 1:
            # Others that were called for before may not even have begun.
            free_ns = max(
                (other.end_ns[rank] for other in others if other.sequence < exchange.sequence),
                default=called_ns,
            )
            return max(0, start_ns - max(called_ns, free_ns))
        busy = sum(other.start_ns[rank] <= called_ns < other.end_ns[rank] for other in others)
        return start_ns - called_ns if busy < self._at_once[exchange.group] else 0

    def _transfer_work(self, computing: dict[int, list[Interval]], rate: float) -> list[int]:
        of_group: dict[int, list[int]] = defaultdict(list)
        for key, exchange in enumerate(self._exchanges):
            of_group[exchange.group].append(key)
        works = [0] * len(self._exchanges)
        for keys in of_group.values():
            members = {rank for key in keys for rank in self._exchanges[key].rows}
            spans = [(self._exchanges[key].begin_ns, self._exchanges[key].done_ns) for key in keys]
            busy = IntervalSet(interval for rank in members for interval in computing[rank])
            for key, work_ns in zip(
                keys, transfer_work_ns(spans, busy, rate, at_once=1), strict=True
            ):
                works[key] = work_ns
        return works

    def _launched_by(self, key: int, exchange: RecordedCollective, rank: int) -> int | None:
        """The last operation of the main thread before it: that of the gradient which fills the
        bucket, or what ended before the program called."""
        pieces = self._pieces[rank, exchange.step]
        ops = self._op_of_piece[rank, exchange.step]
        carrying = self._reductions.get(exchange.step, [])
        if key in carrying:
            wanted = self._buckets[rank].last_gradient(carrying.index(key))
            for piece, op in zip(pieces, ops, strict=True):
                if piece.gradient == wanted:
                    return op
        num_done = self._num_done(rank, exchange.arrival_ns[rank])
        first_wait = self._first_waits[rank].get(key, num_done)
        # It was asked for before it was waited for, whatever the clock says.
        num_done = min(num_done, first_wait)
        return self._ops_of_thread[rank][num_done - 1] if num_done else None

    def _num_done(self, rank: int, at_ns: int) -> int:
        """How many operations of the main thread had ended by then, in whichever step."""
        begun = bisect_right(self._step_starts[rank], at_ns, key=lambda start: start[0]) - 1
        if begun < 0:
            return 0
        _, step, num_before = self._step_starts[rank][begun]
        return num_before + bisect_right(self._pieces[rank, step], at_ns, key=lambda p: p.end_ns)

    def _add_gradients(self, rank: int, step: int, op_of: dict[tuple[int, int], int]) -> None:
        carrying = self._reductions.get(step, [])
        if not carrying:
            return
        pieces, ops = self._pieces[rank, step], self._op_of_piece[rank, step]
        made = {piece.gradient: op for piece, op in zip(pieces, ops, strict=True)}
        copied = {
            key: op
            for piece, op in zip(pieces, ops, strict=True)
            if piece.kind == OpKind.COPY
            for key in piece.waits_for
        }
        buckets = self._buckets[rank]
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

    def _add_memory(self) -> None:
        use = self._trace.memory
        for row in range(len(use)):
            rank = int(use.rank[row])
            if rank not in self._row_of:
                continue
            kind, size = MemoryKind(int(use.kind[row])), int(use.size_bytes[row])
            layer = self._trace.strings[int(use.layer[row])] or None
            if kind != MemoryKind.ACTIVATION:
                self._builder.buffer(size, rank=self._row_of[rank], kind=kind, layer=layer)
                continue
            for step in self._steps:
                taken, given = self._life_of_activations(rank, step)
                if taken is not None and given is not None:
                    self._builder.buffer(
                        size,
                        rank=self._row_of[rank],
                        kind=kind,
                        layer=layer,
                        taken_by=taken,
                        given_by=given,
                    )

    def _life_of_activations(self, rank: int, step: int) -> tuple[int | None, int | None]:
        kinds = [piece.kind for piece in self._pieces[rank, step]]
        ops = self._op_of_piece[rank, step]
        first = kinds.index(OpKind.FORWARD) if OpKind.FORWARD in kinds else None
        backward = [i for i, kind in enumerate(kinds) if kind == OpKind.BACKWARD]
        if first is None or not backward or backward[-1] < first:
            return None, None
        return ops[first], ops[backward[-1]]

    def _add_measured(self) -> None:
        """Plain steps are what a prediction is compared with."""
        steps = self._trace.steps
        rows = np.flatnonzero(counted_rows(self._trace))
        unexplained = {rank: self._unexplained(rank) for rank in self._ranks}
        for row in rows.tolist():
            rank = int(steps.rank[row])
            dur_ns = int(steps.end_ns[row] - steps.start_ns[row])
            if rank in self._row_of and dur_ns > 0:
                self._builder.measured_step(
                    rank=self._row_of[rank],
                    step=int(steps.step[row]),
                    dur_ns=dur_ns,
                    explained_ns=round(dur_ns * (1 - unexplained[rank])),
                )

    def _unexplained(self, rank: int) -> float:
        """The share of the timed steps."""
        missing = total = 0
        for step in self._steps:
            row = np.flatnonzero(
                (self._trace.steps.rank == rank) & (self._trace.steps.step == step)
            )
            total += int((self._trace.steps.end_ns[row] - self._trace.steps.start_ns[row]).sum())
            missing += sum(
                piece.dur_ns
                for piece in self._pieces[rank, step]
                if piece.kind == OpKind.UNEXPLAINED
            )
        return missing / total if total else 0.0


def _timed(trace: Trace) -> tuple[list[int], list[int]]:
    """Ranks and steps, each of which all of those ranks have timed: as many ranks as possible,
    and of ranks that are as many those with the most steps."""
    ranks_of: dict[int, set[int]] = defaultdict(set)
    timed = trace.steps.state == StepState.TIMED
    for rank, step in zip(trace.steps.rank[timed], trace.steps.step[timed], strict=True):
        ranks_of[int(step)].add(int(rank))
    if not ranks_of:
        raise InputError(
            "the run has no timed step",
            remedy="record a window within the job: augury run --steps FIRST:LAST",
        )
    together = Counter(frozenset(ranks) for ranks in ranks_of.values())
    chosen = max(together, key=lambda ranks: (len(ranks), together[ranks], -min(ranks)))
    return sorted(chosen), sorted(step for step, ranks in ranks_of.items() if ranks == chosen)
