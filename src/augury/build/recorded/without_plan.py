"""Converts a run that followed a plan into a run of stock DDP with one bucket, for scheduling.

Pieces and the waits for them are removed, and updates move to the end of their step.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from augury.build.recorded.recorded_collectives import RecordedCollective
from augury.build.recorded.recorded_graph import graph_of
from augury.build.recorded.recorded_run import RecordedRun, recorded_run
from augury.build.recorded.thread_segments import ThreadSegment
from augury.core.enums import OpKind
from augury.core.graph.graph import NONE, Graph
from augury.core.trace.trace import Trace
from augury.core.vocabulary.torch import COPY_BUCKET, GLOO_THREADS, OPTIMIZER_STEP


def has_pieces(trace: Trace) -> bool:
    """Tells whether the recorded steps followed a plan."""
    return any(facts.piece_groups for facts in trace.ranks)


def build_unplanned(trace: Trace) -> Graph:
    """Returns the graph of a run that followed a plan, as if it had not."""
    return graph_of(without_plan(recorded_run(trace)))


def without_plan(run: RecordedRun) -> RecordedRun:
    """Returns the run with one reduction of all gradients per step instead of the pieces."""
    groups = {group for facts in run.trace.ranks for group in facts.piece_groups}
    pieces: dict[int, list[RecordedCollective]] = defaultdict(list)
    for one in run.collectives:
        if one.group in groups:
            pieces[one.step].append(one)
    kept = [key for key, one in enumerate(run.collectives) if one.group not in groups]
    number = {key: place for place, key in enumerate(kept)}
    collectives = [run.collectives[key] for key in kept]
    reductions = {
        step: [number[key] for key in keys]
        for step, keys in run.reductions.items()
        if all(key in number for key in keys)
    }
    segments = {
        place: [_renumbered(segment, number) for segment in own]
        for place, own in run.segments.items()
    }
    concurrent = dict(run.concurrent)
    first = run.buckets[run.ranks[0]]
    size_bytes = sum(first.size_bytes)
    for step in run.steps:
        if step in reductions or not _has_all_gradients(run, step):
            continue
        key = len(collectives)
        collectives.append(_whole_reduction(run, step, key, pieces[step]))
        concurrent.setdefault(first.group, GLOO_THREADS)
        reductions[step] = [key]
        for rank in run.ranks:
            segments[rank, step] = _with_updates_last(segments[rank, step], key, size_bytes)
    return replace(
        run,
        collectives=collectives,
        concurrent=concurrent,
        buckets={
            rank: replace(own, members=[list(range(len(own.names)))])
            for rank, own in run.buckets.items()
        },
        reductions=reductions,
        segments=segments,
        counts_with={key: one.step for key, one in enumerate(collectives)},
    )


def _has_all_gradients(run: RecordedRun, step: int) -> bool:
    return all(
        sum(segment.gradient >= 0 for segment in run.segments[rank, step])
        == len(run.buckets[rank].names)
        > 0
        for rank in run.ranks
    )


def _whole_reduction(
    run: RecordedRun, step: int, key: int, pieces: list[RecordedCollective]
) -> RecordedCollective:
    """Returns the reduction of all gradients of a step. It begins with the last gradient and takes
    as long as the pieces did."""
    first = run.buckets[run.ranks[0]]
    made_ns = {
        rank: max(one.end_ns for one in run.segments[rank, step] if one.gradient >= 0)
        for rank in run.ranks
    }
    end_ns = max(made_ns.values()) + _time_ns(pieces)
    return RecordedCollective(
        kind=OpKind.ALL_REDUCE,
        name="gradients",
        group=first.group,
        sequence=key,
        step=step,
        size_bytes=sum(first.size_bytes),
        rows=dict.fromkeys(run.ranks, NONE),
        arrival_ns=made_ns,
        start_ns=dict(made_ns),
        end_ns=dict.fromkeys(run.ranks, end_ns),
    )


def _renumbered(piece: ThreadSegment, number: dict[int, int]) -> ThreadSegment:
    return replace(piece, waits_for=tuple(number[k] for k in piece.waits_for if k in number))


def _time_ns(pieces: list[RecordedCollective]) -> int:
    """Returns the total time of pieces; of one direction where two ranks exchange messages."""
    of_group: dict[int, int] = defaultdict(int)
    for one in pieces:
        if one.kind != OpKind.BROADCAST:
            of_group[one.group] += one.done_ns - one.begin_ns
    return max(of_group.values(), default=0)


def _with_updates_last(
    pieces: list[ThreadSegment], key: int, size_bytes: int
) -> list[ThreadSegment]:
    """Moves the updates within this forward, which are those of the step before, to the end of the
    step: steps are alike."""
    last = max(i for i, piece in enumerate(pieces) if piece.gradient >= 0)
    moved = [i for i, p in enumerate(pieces[:last]) if p.name.startswith(OPTIMIZER_STEP)]
    at_ns = pieces[-1].end_ns
    update_ns = sum(pieces[i].dur_ns for i in moved)
    copy = ThreadSegment(
        kind=OpKind.COPY,
        name=COPY_BUCKET,
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
