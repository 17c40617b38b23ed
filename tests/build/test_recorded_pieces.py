"""Pieces of a main thread tile a step exactly, and waits are not work."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from augury.build.recorded.interference import compute_work_ns, transfer_work_ns
from augury.build.recorded.thread_segments import ThreadSegment, lay, tile, waiting, without_waits
from augury.core.enums import OpKind
from augury.core.time_intervals import IntervalSet

times = st.integers(-50, 250)


def piece(start_ns: int, end_ns: int, **more: object) -> ThreadSegment:
    return ThreadSegment(kind=OpKind.FORWARD, name="op", start_ns=start_ns, end_ns=end_ns, **more)


@st.composite
def threads(draw: st.DrawFn) -> list[ThreadSegment]:
    """Consecutive events, some of no length, some with a gradient."""
    marks = sorted(draw(st.lists(times, max_size=12)))
    return [
        piece(begin, end, gradient=i if draw(st.booleans()) else -1)
        for i, (begin, end) in enumerate(pairwise(marks))
        if draw(st.booleans())
    ]


spans = st.tuples(times, times).map(sorted).map(tuple)
waits = st.lists(spans, max_size=5).map(
    lambda found: [waiting(begin, end, key) for key, (begin, end) in enumerate(found)]
)
shares = st.sampled_from([0.0, 0.3, 1.0])


@given(threads(), waits, shares)
def test_pieces_tile_the_step(
    events: list[ThreadSegment], waited: list[ThreadSegment], share: float
) -> None:
    tiled = list(tile(lay(events, waited), start_ns=0, end_ns=200, unexplained=share))
    assert tiled[0].start_ns == 0
    assert tiled[-1].end_ns == 200
    assert all(before.end_ns == after.start_ns for before, after in pairwise(tiled))
    assert all(own.dur_ns >= 0 for own in tiled)


@given(threads(), waits, shares)
def test_every_wait_and_gradient_is_kept_once(
    events: list[ThreadSegment], waited: list[ThreadSegment], share: float
) -> None:
    working = list(
        without_waits(tile(lay(events, waited), start_ns=0, end_ns=200, unexplained=share))
    )
    assert all(own.kind != OpKind.SYNC for own in working)
    keys = [key for own in working for key in own.waits_for]
    assert sorted(keys) == list(range(len(waited)))
    made = [own.gradient for own in working if own.gradient >= 0]
    assert made == [own.gradient for own in events if own.gradient >= 0]


@given(threads(), waits, shares)
def test_work_is_the_step_minus_waiting(
    events: list[ThreadSegment], waited: list[ThreadSegment], share: float
) -> None:
    tiled = list(tile(lay(events, waited), start_ns=0, end_ns=200, unexplained=share))
    working = list(without_waits(tiled))
    in_waits = sum(own.dur_ns for own in tiled if own.kind == OpKind.SYNC)
    assert sum(own.dur_ns for own in working) == 200 - in_waits
    covered = IntervalSet((own.start_ns, own.end_ns) for own in waited)
    assert in_waits <= covered.within(np.array([0]), np.array([200]))[0]


@given(threads(), waits)
def test_pieces_after_a_wait_start_at_its_end(
    events: list[ThreadSegment], waited: list[ThreadSegment]
) -> None:
    for own in without_waits(tile(lay(events, waited), start_ns=0, end_ns=200, unexplained=1.0)):
        for key in own.waits_for:
            assert own.start_ns >= min(waited[key].end_ns, 200)


def test_a_wait_in_the_middle_of_an_event_splits_it() -> None:
    laid = list(lay([piece(0, 100, gradient=3)], [waiting(20, 60, 7)]))
    assert [(own.kind, own.start_ns, own.end_ns, own.gradient) for own in laid] == [
        (OpKind.FORWARD, 0, 20, 3),
        (OpKind.SYNC, 20, 60, -1),
        (OpKind.FORWARD, 60, 100, -1),
    ]


def test_gaps_belong_to_the_preceding_event_or_stay_unexplained() -> None:
    tiled = list(tile([piece(0, 40), piece(60, 100)], start_ns=0, end_ns=110, unexplained=0.5))
    assert [(own.kind, own.start_ns, own.end_ns) for own in tiled] == [
        (OpKind.FORWARD, 0, 50),
        (OpKind.UNEXPLAINED, 50, 60),
        (OpKind.FORWARD, 60, 105),
        (OpKind.UNEXPLAINED, 105, 110),
    ]


@given(st.lists(spans, max_size=8), spans)
def test_busy_counts_every_moment_once(
    found: list[tuple[int, int]], asked: tuple[int, int]
) -> None:
    inside = {at for begin, end in found for at in range(begin, end)}
    within = IntervalSet(found).within(np.array([asked[0]]), np.array([asked[1]]))[0]
    assert within == len(inside & set(range(*asked)))


@given(st.lists(spans, max_size=6), spans, st.sampled_from([0.25, 0.5, 1.0]))
def test_interference_is_divided_out_of_compute(
    found: list[tuple[int, int]], own: tuple[int, int], rate: float
) -> None:
    inside = {at for begin, end in found for at in range(begin, end)} & set(range(*own))
    work = compute_work_ns(np.array([own[0]]), np.array([own[1]]), IntervalSet(found), rate)[0]
    assert abs(work - (own[1] - own[0] - len(inside) * (1 - rate))) <= 0.5


@given(st.lists(spans, min_size=1, max_size=6), st.integers(1, 2))
def test_concurrent_transfers_share_the_link(found: list[tuple[int, int]], at_once: int) -> None:
    works = transfer_work_ns(found, IntervalSet([]), 1.0, at_once=at_once)
    for (begin, end), work in zip(found, works, strict=True):
        count = [sum(b <= at < e for b, e in found) for at in range(begin, end)]
        expected = sum(min(1.0, at_once / number) for number in count)
        assert abs(work - max(1, expected)) <= 0.5 + 1e-9
