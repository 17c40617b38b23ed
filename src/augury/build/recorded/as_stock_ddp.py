"""A run that followed a plan, as stock DDP would have done it with a single bucket: what scheduling
starts from. Pieces, and waits for them, are gone; updates come at the end of their step."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from augury.build.recorded.recorded_collectives import RecordedCollective
from augury.build.recorded.recorded_graph import RecordedGraph
from augury.build.recorded.thread_segments import ThreadSegment
from augury.core.enums import OpKind
from augury.core.graph.graph import NONE, Graph
from augury.core.trace.trace import Trace

UPDATES = "Optimizer.step#"


def has_pieces(trace: Trace) -> bool:
    """Whether the run followed a plan in what was recorded."""
    return any(facts.piece_groups for facts in trace.ranks)


def build_unplanned(trace: Trace) -> Graph:
    return _Unplanned(trace).graph()


class _Unplanned(RecordedGraph):
    def __init__(self, trace: Trace) -> None:
        super().__init__(trace)
        groups = {group for facts in trace.ranks for group in facts.piece_groups}
        pieces = [one for one in self._exchanges if one.group in groups]
        kept = [key for key, one in enumerate(self._exchanges) if one.group not in groups]
        number = {key: place for place, key in enumerate(kept)}
        self._exchanges = [self._exchanges[key] for key in kept]
        self._reductions = {
            step: [number[key] for key in keys]
            for step, keys in self._reductions.items()
            if all(key in number for key in keys)
        }
        self._pieces = {
            place: [_renumbered(piece, number) for piece in own]
            for place, own in self._pieces.items()
        }
        self._buckets = {
            rank: replace(own, members=[list(range(len(own.names)))])
            for rank, own in self._buckets.items()
        }
        of_step: dict[int, list[RecordedCollective]] = defaultdict(list)
        for one in pieces:
            of_step[one.step].append(one)
        for step in self._steps:
            if step not in self._reductions and self._has_all_gradients(step):
                self._reduce_at_once(step, of_step[step])
        self._counts_with = {key: one.step for key, one in enumerate(self._exchanges)}

    def _has_all_gradients(self, step: int) -> bool:
        return all(
            sum(piece.gradient >= 0 for piece in self._pieces[rank, step])
            == len(self._buckets[rank].names)
            > 0
            for rank in self._ranks
        )

    def _reduce_at_once(self, step: int, pieces: list[RecordedCollective]) -> None:
        key, group = len(self._exchanges), self._buckets[self._ranks[0]].group
        size_bytes = sum(self._buckets[self._ranks[0]].size_bytes)
        made_ns = {rank: self._last_made_ns(rank, step) for rank in self._ranks}
        end_ns = max(made_ns.values()) + _time_ns(pieces)
        self._exchanges.append(
            RecordedCollective(
                kind=OpKind.ALL_REDUCE,
                name="gradients",
                group=group,
                sequence=key,
                step=step,
                size_bytes=size_bytes,
                rows=dict.fromkeys(self._ranks, NONE),
                arrival_ns=made_ns,
                start_ns=dict(made_ns),
                end_ns=dict.fromkeys(self._ranks, end_ns),
            )
        )
        self._at_once.setdefault(group, 2)
        self._reductions[step] = [key]
        for rank in self._ranks:
            self._pieces[rank, step] = _with_updates_last(self._pieces[rank, step], key, size_bytes)

    def _last_made_ns(self, rank: int, step: int) -> int:
        return max(piece.end_ns for piece in self._pieces[rank, step] if piece.gradient >= 0)


def _renumbered(piece: ThreadSegment, number: dict[int, int]) -> ThreadSegment:
    return replace(piece, waits_for=tuple(number[k] for k in piece.waits_for if k in number))


def _time_ns(pieces: list[RecordedCollective]) -> int:
    """Of one direction where ranks swap."""
    of_group: dict[int, int] = defaultdict(int)
    for one in pieces:
        if one.kind != OpKind.BROADCAST:
            of_group[one.group] += one.done_ns - one.begin_ns
    return max(of_group.values(), default=0)


def _with_updates_last(
    pieces: list[ThreadSegment], key: int, size_bytes: int
) -> list[ThreadSegment]:
    """Updates amid this forward are those of the step before: steps are alike."""
    last = max(i for i, piece in enumerate(pieces) if piece.gradient >= 0)
    moved = [i for i, p in enumerate(pieces[:last]) if p.name.startswith(UPDATES)]
    at_ns = pieces[-1].end_ns
    update_ns = sum(pieces[i].dur_ns for i in moved)
    copy = ThreadSegment(
        kind=OpKind.COPY,
        name="copy bucket to gradients",
        start_ns=at_ns,
        end_ns=at_ns,
        size_bytes=size_bytes,
        waits_for=(key,),
    )
    update = ThreadSegment(
        kind=OpKind.UPDATE, name="updates", start_ns=at_ns, end_ns=at_ns + update_ns
    )
    gone = set(moved)
    kept = [
        replace(p, end_ns=p.start_ns) if i in gone and p.waits_for else p
        for i, p in enumerate(pieces)
        if i not in gone or p.waits_for
    ]
    return [*kept, copy, update]
