"""The schedule of recording windows, for jobs of any length."""

from __future__ import annotations

import itertools

import pytest

from augury.capture.window_schedule import (
    EARLY_WINDOWS,
    FIRST_WINDOWS,
    MAX_SHARE,
    MAX_WINDOWS,
    MIN_STRIDE,
    NUM_SPREAD_STEPS,
    StepWindow,
    WindowSchedule,
    stride_for,
)


def run_job(num_steps: int, stride: int) -> WindowSchedule:
    """Returns the schedule after a job of ``num_steps`` steps."""
    schedule = WindowSchedule()
    for step in range(1, num_steps + 1):
        if schedule.is_edge(step) and (closed := schedule.closing_at(step)) is not None:
            closed.trace = "trace"
            for dropped in schedule.after(closed):
                dropped.trace = None
            if closed is schedule.detail:
                schedule.spread(stride)
    return schedule


def kept(schedule: WindowSchedule) -> list[StepWindow]:
    return [window for window in schedule.windows if window.trace and window.mode == "light"]


def test_given_windows_are_followed_by_the_detail_and_nothing_else() -> None:
    schedule = WindowSchedule([(4, 6), (8, 10)])
    for step in range(1, 1000):
        if (closed := schedule.closing_at(step)) is not None:
            assert not schedule.after(closed)
    windows = [(one.first, one.last, one.mode) for one in schedule.windows]
    assert windows == [(4, 6, "light"), (8, 10, "light"), (11, 14, "detail")]


def test_a_short_job_gets_the_first_windows_and_the_detail() -> None:
    schedule = run_job(30, 100)
    assert [(one.first, one.last) for one in kept(schedule)] == [*FIRST_WINDOWS]
    assert schedule.detail.trace


@pytest.mark.parametrize("num_steps", [8, 12, 18, 24, 30])
def test_early_windows_make_way_for_regular_ones(num_steps: int) -> None:
    schedule = run_job(num_steps, 100)
    windows = {
        mode: [one for one in schedule.windows if one.mode == mode] for mode in ("light", "detail")
    }
    for (first, last, mode), early in zip(EARLY_WINDOWS, schedule.windows, strict=False):
        assert (early.first, early.last, early.mode) == (first, last, mode)
        has_regular = any(one.trace for one in windows[mode] if not one.is_early)
        assert (early.trace is not None) is not has_regular
        assert early.dropped is has_regular
    assert any(one.trace for one in windows["light"])
    assert any(one.trace for one in windows["detail"])


@pytest.mark.parametrize("num_steps", [500, 3_000, 20_000, 99_999])
def test_windows_are_spread_evenly_over_a_job_of_any_length(num_steps: int) -> None:
    windows = kept(run_job(num_steps, 20))
    assert MAX_WINDOWS // 2 <= len(windows) <= MAX_WINDOWS
    gaps = [b.first - a.first for a, b in itertools.pairwise(windows)]
    assert max(gaps[1:]) <= 2 * min(gaps[1:])
    # The end of the job is within a gap of the last window.
    assert num_steps - windows[-1].last <= 2 * max(gaps)


def test_there_is_a_plain_step_between_any_two_windows() -> None:
    windows = run_job(5_000, MIN_STRIDE).windows
    assert all(a.last < b.first for a, b in itertools.pairwise(windows))


def test_the_number_of_windows_opened_grows_with_the_logarithm_of_the_job() -> None:
    opened = len(run_job(100_000, MIN_STRIDE).windows)
    assert opened < MAX_WINDOWS * 8


def test_ranks_that_fail_to_record_a_window_keep_the_schedule_of_the_others() -> None:
    def positions(fails: int | None) -> list[tuple[int, int, bool]]:
        schedule = WindowSchedule()
        for step in range(1, 4_000):
            if (closed := schedule.closing_at(step)) is not None:
                closed.trace = None if closed.first == fails else "trace"
                schedule.after(closed)
                if closed is schedule.detail:
                    schedule.spread(40)
        return [(one.first, one.last, one.dropped) for one in schedule.windows]

    assert positions(17) == positions(63) == positions(None)


def test_a_postponed_window_moves_all_later_ones() -> None:
    schedule = WindowSchedule()
    schedule.leave_out_early()
    first = schedule.windows[0].first
    for step in range(first, first + 7):
        schedule.postpone(step)
        assert not schedule.is_edge(step)
    moved = [(one.first, one.last) for one in schedule.windows[:2]]
    assert moved == [(a + 7, b + 7) for a, b in FIRST_WINDOWS]
    assert schedule.is_edge(first + 7)
    assert schedule.detail.first == schedule.windows[1].last + 1


@pytest.mark.parametrize("step_ms", [1, 20, 300, 10_000])
def test_windows_take_a_small_share_of_the_time(step_ms: int) -> None:
    cost_ns, step_ns = 50_000_000, step_ms * 1_000_000
    stride = stride_for(cost_ns, step_ns)
    assert stride >= MIN_STRIDE > NUM_SPREAD_STEPS
    assert cost_ns / (stride * step_ns) <= MAX_SHARE
