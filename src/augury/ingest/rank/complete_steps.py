"""Chooses the ranks and steps that a prediction of imported traces can use.

A recording that was cut begins or ends within a step, and ranks may have recorded different steps.
Parts of steps are no steps, so a prediction uses successive steps that are complete on each of its
ranks: as many steps of as many ranks as possible.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from augury.core.columns import I8
from augury.core.enums import OpKind, StepState
from augury.core.graph.graph import NONE
from augury.core.ledger import Ledger, Severity
from augury.ingest.ancestors import enclosing
from augury.ingest.collectives.matching.matched_collectives import MatchedCollective
from augury.ingest.rank.staged_rank import StagedRank
from augury.ingest.trace_builder import MutableEvents

_MAX_STARTS = 1_000
_MIN_LOST = 3
"""Launches without a kernel at the end of a step that show that the device's record was cut."""


def number_steps_alike(
    ranks: Mapping[int, StagedRank], matched: Sequence[MatchedCollective], ledger: Ledger
) -> None:
    """Ranks may count from different steps: a collective is in the same step on all its ranks."""
    shifts: dict[int, int] = {}
    for rank in sorted(ranks):
        votes: Counter[int] = Counter()
        for one in matched:
            own = one.parts.get(rank)
            others = [other for other in one.parts if other in shifts]
            if own is None or own.step == NONE or not others:
                continue
            other = one.parts[others[0]].step
            if other != NONE:
                votes[other + shifts[others[0]] - own.step] += 1
        shift, count = votes.most_common(1)[0] if votes else (0, 0)
        # Numbers that agree in part are kept: collectives may run on into the next step.
        shifts[rank] = shift if 2 * count > votes.total() else 0
    lowest = min(shifts.values(), default=0)
    moved = {rank: shift - lowest for rank, shift in shifts.items()}
    for rank, shift in moved.items():
        if not shift:
            continue
        moving = ranks[rank]
        step = moving.load().step
        moving.store_steps(np.where(step == NONE, NONE, step + shift))
        moving.steps = [(number + shift, *rest) for number, *rest in moving.steps]  # type: ignore[misc]
        for item in moving.collectives:
            item.step += shift if item.step != NONE else 0
    ledger.note(
        "step-numbers-differ",
        "a rank counts its steps from another number; its steps are matched by their collectives",
        severity=Severity.INFO,
        count=sum(shift != 0 for shift in moved.values()),
        example=", ".join(f"rank {rank}: {shift:+d}" for rank, shift in list(moved.items())[:8]),
    )


def choose_steps(ranks: Mapping[int, StagedRank], refused: Iterable[int], ledger: Ledger) -> None:
    """Gives steps the state DISTURBED where a prediction does not use them. Events after a rank's
    last step belong to no step, if the recording goes on."""
    timed = {
        rank: {n: (start, end) for n, start, end, state in one.steps if state == StepState.TIMED}
        for rank, one in ranks.items()
    }
    refused = {*refused} | _ranks_without_marks(ranks)
    records = {rank: _RankRecord.of(ranks[rank], own) for rank, own in timed.items()}
    cut = _cut_steps(records, timed)
    complete = {
        rank: {number for number in own if (rank, number) not in cut}
        for rank, own in timed.items()
        if rank not in refused
    }
    chosen_ranks, chosen_steps = _largest_choice(complete)
    if not chosen_ranks:
        ledger.note(
            "no-complete-step",
            "no step is complete on any rank; the prediction uses parts of steps",
            severity=Severity.ERROR,
            remedy="record whole steps",
        )
        return
    _note_left_out(timed, cut, chosen_ranks, chosen_steps, ledger)
    for rank, one in ranks.items():
        if records[rank].goes_on:
            _leave_out_the_rest(one)
        chosen = chosen_steps if rank in chosen_ranks else set()
        one.steps = [
            (
                n,
                start,
                end,
                state if state != StepState.TIMED or n in chosen else StepState.DISTURBED,
            )
            for n, start, end, state in one.steps
        ]


def _ranks_without_marks(ranks: Mapping[int, StagedRank]) -> set[int]:
    """Ranks without the annotations or updates that mark the steps of other ranks: the recording
    was cut within the only step."""
    best = max(one.step_source for one in ranks.values())
    return {rank for rank, one in ranks.items() if one.step_source < best}


@dataclass(frozen=True, slots=True)
class _RankRecord:
    """Facts of each step of one rank, by the number of the step."""

    before_ns: dict[int, int]
    """Time from the start of the step to its first call of the device, or first event."""
    after_ns: dict[int, int]
    """Time from the last of these to the end of the step."""
    num_lost: dict[int, int]
    """Number of successive launches without a kernel at the end of the step."""
    goes_on: bool
    """Whether the recording goes on after the last step."""

    @classmethod
    def of(cls, own: StagedRank, steps: Mapping[int, tuple[int, int]]) -> _RankRecord:
        events = own.load()
        is_call = np.isin(events.kind, [OpKind.LAUNCH, OpKind.SYNC])
        if not is_call.any():
            is_call = _enclose_nothing(events)
        calls = np.flatnonzero(is_call)
        calls = calls[np.argsort(events.start_ns[calls], kind="stable")]
        start_ns, end_ns = events.start_ns[calls], events.end_ns[calls]
        has_kernel = np.isin(calls, events.cause[events.cause != NONE])
        is_launch = events.kind[calls] == OpKind.LAUNCH
        on_device = bool(own.are_on_device.any())
        found = cls({}, {}, {}, _goes_on(own, events))
        for number, (begin_ns, done_ns) in steps.items():
            first, last = np.searchsorted(start_ns, [begin_ns, done_ns])
            if first == last:
                found.before_ns[number] = found.after_ns[number] = done_ns - begin_ns
                found.num_lost[number] = 0
                continue
            found.before_ns[number] = int(start_ns[first]) - begin_ns
            found.after_ns[number] = max(0, done_ns - int(end_ns[first:last].max()))
            with_kernel = has_kernel[first:last][is_launch[first:last]]
            found.num_lost[number] = _num_trailing(~with_kernel) if on_device else 0
        return found


def _enclose_nothing(events: MutableEvents) -> NDArray[np.bool_]:
    """Whether each event is an innermost one on its stream."""
    order = np.lexsort((-events.dur_ns, events.start_ns, events.stream))
    parent = enclosing(events.stream[order], events.start_ns[order], events.dur_ns[order])
    found = np.ones(len(events), dtype=bool)
    found[order[parent[parent >= 0]]] = False
    return found


def _num_trailing(flags: NDArray[np.bool_]) -> int:
    """Number of successive true values at the end."""
    kept = np.flatnonzero(~flags)
    return len(flags) - (int(kept[-1]) + 1 if len(kept) else 0)


def _cut_steps(
    records: Mapping[int, _RankRecord], timed: Mapping[int, Mapping[int, tuple[int, int]]]
) -> set[tuple[int, int]]:
    """Rank and number of each step that its recording does not cover: the first step if it has no
    event for longer than other steps at their start, the last step likewise at its end, and steps
    whose last launches left no kernels."""
    cut: set[tuple[int, int]] = set()
    usual_before = _medians({r: one.before_ns for r, one in records.items()})
    usual_after = _medians({r: one.after_ns for r, one in records.items()})
    usual_lost = _medians({r: one.num_lost for r, one in records.items()})
    for rank, one in records.items():
        if not timed[rank]:
            continue
        first, last = min(timed[rank]), max(timed[rank])
        for number, (begin_ns, end_ns) in timed[rank].items():
            allowed_ns = 500_000 + (end_ns - begin_ns) // 50
            is_cut = number == first and one.before_ns[number] > 2 * usual_before[rank] + allowed_ns
            is_cut |= number == last and one.after_ns[number] > 2 * usual_after[rank] + allowed_ns
            is_cut |= one.num_lost[number] >= _MIN_LOST + 2 * usual_lost[rank]
            if is_cut:
                cut.add((rank, number))
    return cut


def _medians(of_ranks: Mapping[int, Mapping[int, int]]) -> dict[int, float]:
    """For each rank the median over the steps of the other ranks and, with enough steps, its
    own."""
    found = {}
    for rank, own in of_ranks.items():
        values = [value for r, each in of_ranks.items() if r != rank for value in each.values()]
        values += own.values() if len(own) > 2 or not values else []
        found[rank] = float(np.median(values)) if values else 0.0
    return found


def _largest_choice(complete: Mapping[int, set[int]]) -> tuple[set[int], set[int]]:
    """Returns the ranks and the successive steps with the largest number of complete steps in all;
    of equally many, those of the most ranks."""
    numbers = sorted({number for own in complete.values() for number in own})
    ranks = sorted(complete)
    if not numbers:
        return set(), set()
    table = np.array([[number in complete[rank] for number in numbers] for rank in ranks])
    follows = np.diff(np.array(numbers), prepend=numbers[0] - 1) == 1
    starts = table.copy()
    starts[:, 1:] &= ~(table[:, :-1] & follows[1:])
    best: tuple[int, int, int, int, I8] | None = None
    for first in np.flatnonzero(starts.any(axis=0))[:_MAX_STARTS].tolist():
        breaks = np.flatnonzero(~follows[first + 1 :])
        last = first + 1 + (int(breaks[0]) if len(breaks) else len(numbers) - first - 1)
        whole = np.logical_and.accumulate(table[:, first:last], axis=1)
        num_ranks = whole.sum(axis=0)
        sizes = num_ranks * np.arange(1, last - first + 1)
        place = max(range(len(sizes)), key=lambda i: (int(sizes[i]), int(num_ranks[i])))
        found = (int(sizes[place]), int(num_ranks[place]), first, first + place + 1)
        if best is None or found[:2] > best[:2]:
            best = (*found, np.flatnonzero(whole[:, place]))
    assert best is not None
    _, _, first, last, rows = best
    return {ranks[row] for row in rows.tolist()}, set(numbers[first:last])


def _goes_on(own: StagedRank, events: MutableEvents) -> bool:
    """Whether there are events of the host for a while after the last step: a step that was cut at
    its end left no annotation."""
    if not own.steps:
        return False
    _, start_ns, end_ns, _ = max(own.steps)
    later = _after_last_step(own, events)
    return bool(later.any()) and (
        int(events.end_ns[later].max()) - end_ns >= (end_ns - start_ns) // 50
    )


def _after_last_step(own: StagedRank, events: MutableEvents) -> NDArray[np.bool_]:
    on_host = ~own.are_on_device[events.stream]
    on_host[own.num_read :] = True
    found: NDArray[np.bool_] = on_host & (events.start_ns >= max(own.steps)[2])
    return found


def _leave_out_the_rest(own: StagedRank) -> None:
    """The first events of a step without an annotation would seem to belong to the step before."""
    events = own.load()
    later = _after_last_step(own, events)
    events.step[later] = NONE
    caused = events.cause != NONE
    caused[own.num_read :] = False  # causes of restored parts are only near in time
    caused[caused] = later[events.cause[caused]]
    events.step[caused] = NONE
    own.store_steps(events.step)


def _note_left_out(
    timed: Mapping[int, Mapping[int, tuple[int, int]]],
    cut: set[tuple[int, int]],
    ranks: set[int],
    steps: set[int],
    ledger: Ledger,
) -> None:
    ledger.note(
        "cut-step",
        "a rank's recording does not cover one of its steps; the step is left out of the"
        " prediction",
        count=len(cut),
        example="rank {}, step {}".format(*min(cut)) if cut else "",
    )
    without = sorted(set(timed) - ranks)
    ledger.note(
        "rank-without-complete-steps",
        "a rank lacks steps that most ranks recorded; it is left out of the prediction",
        count=len(without),
        remedy="record the same steps on all ranks",
        example=f"rank {without[0]}" if without else "",
    )
    unused = {
        (rank, number)
        for rank in ranks
        for number in timed[rank]
        if number not in steps and (rank, number) not in cut
    }
    ledger.note(
        "step-not-on-all-ranks",
        "a step was not recorded completely on all ranks; it is left out of the prediction",
        count=len(unused),
        remedy="record the same steps on all ranks",
        example="rank {}, step {}".format(*min(unused)) if unused else "",
    )
