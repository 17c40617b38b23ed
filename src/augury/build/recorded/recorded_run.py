"""The timed steps of a recorded run: collectives, buckets, and segments of main threads."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, replace

from augury.build.recorded.detail_window import detail_of
from augury.build.recorded.gradient_buckets import (
    BucketTable,
    buckets_of,
    earlier_reductions,
    reductions,
)
from augury.build.recorded.main_thread import ThreadStep, thread_step
from augury.build.recorded.recorded_collectives import (
    RecordedCollective,
    awaited_collectives,
    collectives_of,
    concurrent_transfers,
)
from augury.build.recorded.thread_segments import ThreadSegment
from augury.core.enums import OpKind, StepState
from augury.core.errors import InputError
from augury.core.graph.graph import NONE
from augury.core.trace.trace import Trace

Place = tuple[int, int]
"""Rank and step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRun:
    """Everything that the graph of a recorded run is built from. Collectives are known by their
    index in ``collectives``, their key."""

    trace: Trace
    ranks: list[int]
    steps: list[int]
    """Steps that all of ``ranks`` have timed."""
    collectives: list[RecordedCollective]
    concurrent: dict[int, int]
    """Number of collectives that a process group runs at a time, by group."""
    buckets: dict[int, BucketTable]
    """Buckets of each rank."""
    reductions: dict[int, list[int]]
    """Keys of the collectives that carry the buckets of a step, in order."""
    segments: dict[Place, list[ThreadSegment]]
    """Work of each rank's main thread in each step."""
    counts_with: dict[int, int]
    """Step that a collective counts with, by key. Collectives without a step are not replayed."""

    def is_reduction(self, key: int) -> bool:
        """Whether a collective carries a bucket of gradients."""
        return key in self.reductions.get(self.collectives[key].step, [])


def recorded_run(trace: Trace) -> RecordedRun:
    """Raises InputError where no step was timed."""
    ranks, steps = _timed(trace)
    collectives = collectives_of(trace, set(steps), set(ranks))
    concurrent = concurrent_transfers(collectives)
    buckets = {rank: buckets_of(trace, rank) for rank in ranks}
    carrying = reductions(collectives, buckets)
    threads = _thread_steps(trace, ranks, steps, collectives, buckets, carrying)
    segments = {place: thread.segments for place, thread in threads.items()}
    collectives = _with_ends(collectives, threads)
    return RecordedRun(
        trace=trace,
        ranks=ranks,
        steps=steps,
        collectives=collectives,
        concurrent=concurrent,
        buckets=buckets,
        reductions=carrying,
        segments=segments,
        counts_with=_steps_that_wait(trace, collectives, segments),
    )


def _thread_steps(
    trace: Trace,
    ranks: list[int],
    steps: list[int],
    collectives: list[RecordedCollective],
    buckets: dict[int, BucketTable],
    carrying: dict[int, list[int]],
) -> dict[Place, ThreadStep]:
    of_place: dict[Place, dict[int, RecordedCollective]] = defaultdict(dict)
    for key, one in enumerate(collectives):
        for rank in one.rows:
            of_place[rank, one.step][key] = one
    awaited = awaited_collectives(trace, collectives, steps)
    earlier = earlier_reductions(collectives, carrying)
    details = {
        rank: detail_of(trace, rank, num_gradients=len(buckets[rank].names)) for rank in ranks
    }
    return {
        (rank, step): thread_step(
            trace,
            rank,
            step,
            detail=details[rank],
            buckets=buckets[rank],
            collectives=of_place[rank, step],
            reductions=carrying.get(step, []),
            earlier=earlier.get(step, []),
            awaited=awaited,
        )
        for rank in ranks
        for step in steps
    }


def _with_ends(
    collectives: list[RecordedCollective], threads: dict[Place, ThreadStep]
) -> list[RecordedCollective]:
    """Returns the collectives with the ends that main threads have shown to be earlier."""
    ends_ns: dict[int, dict[int, int]] = defaultdict(dict)
    for (rank, _), thread in threads.items():
        for key, end_ns in thread.end_ns.items():
            ends_ns[key][rank] = end_ns
    return [
        replace(one, end_ns=one.end_ns | ends_ns[key]) if key in ends_ns else one
        for key, one in enumerate(collectives)
    ]


def _steps_that_wait(
    trace: Trace,
    collectives: list[RecordedCollective],
    segments: dict[Place, list[ThreadSegment]],
) -> dict[int, int]:
    """Returns the step that each collective counts with: the last that waits for it, else its own.
    Collectives that were only waited for after the window are left out: no step depends on them."""
    last: dict[int, int] = {}
    for (_, step), own in segments.items():
        for segment in own:
            for key in segment.waits_for:
                last[key] = max(step, last.get(key, step))
    events = trace.events
    waits = (events.kind == OpKind.SYNC) & (events.group != NONE)
    seen = {*zip(events.group[waits].tolist(), events.sequence[waits].tolist(), strict=True)}
    return {
        key: max(one.step, last.get(key, one.step))
        for key, one in enumerate(collectives)
        if key in last or (one.group, one.sequence) not in seen
    }


def _timed(trace: Trace) -> tuple[list[int], list[int]]:
    """Returns ranks, and the steps that exactly these have timed: as many ranks as possible, and of
    equally many the ones with the most steps."""
    ranks_of: dict[int, set[int]] = defaultdict(set)
    timed = trace.steps.state == StepState.TIMED
    for rank, step in zip(trace.steps.rank[timed], trace.steps.step[timed], strict=True):
        ranks_of[int(step)].add(int(rank))
    if not ranks_of:
        trouble = next((facts.trouble for facts in trace.ranks if facts.trouble), None)
        raise InputError(
            "the run has no timed step" + (f": {trouble}" if trouble else ""),
            remedy="record more steps, or a window within the job: augury run --steps FIRST:LAST",
        )
    together = Counter(frozenset(ranks) for ranks in ranks_of.values())
    chosen = max(together, key=lambda ranks: (len(ranks), together[ranks], -min(ranks)))
    return sorted(chosen), sorted(step for step, ranks in ranks_of.items() if ranks == chosen)
