"""Verdicts of the watch, and the steps that its windows measure, without a job."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec
import pytest

from augury.capture import process_identity, step_log
from augury.capture.framework import PhaseTimes
from augury.capture.recorder import StepRecorder
from augury.capture.settings import Settings
from augury.capture.watch.verdict import VerdictInForce, job_times
from augury.capture.watch.window import NUM_STEPS, WatchedSteps
from augury.core.results.watch import RankTimes, WatchLine
from tests.capture.fake_framework import FakeFramework

MS = 1_000_000


def rank_times(
    rank: int, *, data: int = 5, forward: int = 30, communication: int = 10, noise: int = 1
) -> RankTimes:
    """Times in milliseconds; backward and update take 50."""
    return RankTimes(
        rank=rank,
        step_ns=(data + forward + communication + 50) * MS,
        spread_ns=noise * MS,
        input_ns=data * MS,
        forward_ns=forward * MS,
        backward_ns=40 * MS,
        communication_ns=communication * MS,
        update_ns=10 * MS,
    )


class Watched:
    """A watched job of which each window is given."""

    def __init__(self) -> None:
        self._verdicts = VerdictInForce()
        self._step = 0

    def add(self, *ranks: RankTimes) -> str | None:
        self._step += 100
        return self._verdicts.add(job_times(ranks), self._step)[1]


def healthy() -> tuple[RankTimes, RankTimes]:
    return rank_times(0), rank_times(1)


def late(rank: int) -> tuple[RankTimes, RankTimes]:
    """The other rank waits for the late one."""
    slow, waiting = rank_times(rank, forward=60), rank_times(1 - rank, communication=40)
    return (slow, waiting) if rank == 0 else (waiting, slow)


def test_a_straggler_is_told_when_it_appears_changes_and_leaves() -> None:
    job = Watched()
    told = [job.add(*window) for window in (healthy(), healthy(), late(1), late(1), late(1))]
    assert told[:3] == [None, None, None]
    assert told[3] == (
        "step 400: rank 1 is a straggler, 30 ms per step behind the others in forward;"
        " the step takes 125 ms, 32 % longer than at step 100"
    )
    assert told[4] is None
    assert [job.add(*late(0)), job.add(*late(0))] == [
        None,
        "step 700: rank 0 is a straggler, 30 ms per step behind the others in forward;"
        " the step takes 125 ms, 32 % longer than at step 100",
    ]
    assert [job.add(*healthy()), job.add(*healthy())] == [
        None,
        "step 900: rank 0 is no longer a straggler; the step takes 95 ms, bound by compute",
    ]


def test_a_slower_link_is_told() -> None:
    job = Watched()
    slow = [rank_times(rank, communication=40) for rank in (0, 1)]
    assert [job.add(*window) for window in (healthy(), healthy(), slow, slow)] == [
        None,
        None,
        None,
        "step 400: communication is slower by 30 ms per step; the step takes 125 ms,"
        " 32 % longer than at step 100, bound by compute",
    ]
    assert [job.add(*healthy()), job.add(*healthy())][1] == (
        "step 600: communication is no longer slower than at first; the step takes 95 ms,"
        " bound by compute"
    )


def test_slow_input_is_told() -> None:
    job = Watched()
    slow = [rank_times(rank, data=150) for rank in (0, 1)]
    told = [job.add(*window) for window in (healthy(), healthy(), slow, slow)][-1]
    assert told is not None
    assert "input is slower by 145 ms per step" in told
    assert "bound by input" in told


def test_one_slow_window_is_no_news() -> None:
    job = Watched()
    windows = (healthy(), healthy(), late(1), healthy(), late(1), healthy())
    assert [job.add(*window) for window in windows] == [None] * 6


def test_changes_within_noise_are_no_news() -> None:
    job = Watched()
    calm = [rank_times(rank, noise=20) for rank in (0, 1)]
    noisy = [rank_times(0, communication=40, noise=20), rank_times(1, forward=60, noise=20)]
    assert [job.add(*window) for window in (calm, calm, noisy, noisy, noisy)] == [None] * 5


def test_a_verdict_near_its_limit_does_not_come_and_go() -> None:
    def behind(ms: int) -> tuple[RankTimes, RankTimes]:
        return rank_times(0, communication=10 + ms), rank_times(1, forward=30 + ms)

    job = Watched()
    told = [job.add(*behind(ms)) for ms in (0, 0, 20, 20, 8, 8, 12, 8, 8)]
    assert [text is not None for text in told] == [*[False] * 3, True, *[False] * 5]


def test_a_straggler_from_the_start_is_told_and_a_bound_is_not() -> None:
    job = Watched()
    assert job.add(*late(1)) is None
    told = job.add(*late(1))
    assert told is not None
    assert "rank 1 is a straggler" in told


def test_one_rank_alone_is_no_straggler() -> None:
    job = Watched()
    assert [job.add(rank_times(0)) for _ in range(3)] == [None] * 3


class CheckedPhases:
    def __init__(self) -> None:
        self.is_on = False
        self.num_starts = 0

    def start(self) -> None:
        assert not self.is_on
        self.is_on = True
        self.num_starts += 1

    def end_step(self) -> PhaseTimes:
        assert self.is_on
        return PhaseTimes(input_ns=1, forward_ns=2, communication_ns=3, update_ns=4)

    def stop(self) -> None:
        assert self.is_on
        self.is_on = False


def test_windows_measure_plain_steps_only() -> None:
    phases = CheckedPhases()
    steps = WatchedSteps(20, phases, lambda: [(30, 7)])
    found = []
    for step in range(1, 60):
        # The recorder profiles steps 24 to 27.
        is_next_plain = not 23 <= step <= 26
        found.append(steps.end_step(3, is_next_plain=is_next_plain))
        assert not phases.is_on or is_next_plain
    first, second = [window for window in found if window is not None]
    assert (first.number, first.first_step, first.last_step) == (1, 22, 34)
    assert (second.number, second.first_step, second.last_step) == (2, 42, 41 + NUM_STEPS)
    assert phases.num_starts == 3
    assert first.times.rank == 3
    assert (first.times.input_ns, first.times.communication_ns) == (1, 3)
    assert (first.times.copy_ns, second.times.copy_ns) == (7, 7)


@pytest.fixture
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(process_identity, "_learned", (0, 1))
    monkeypatch.setattr("atexit.register", lambda _action: None)


@pytest.mark.usefixtures("_alone")
def test_a_job_is_watched_after_its_log_of_steps_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step_log, "MAX_LOGGED_STEPS", 25)
    recorder = StepRecorder(Settings(out=str(tmp_path), watch=10), FakeFramework())
    for _ in range(60):
        recorder.end_step(time.time_ns())
    recorder._at_exit()
    lines = (tmp_path / "watch.jsonl").read_bytes().splitlines()
    assert msgspec.json.decode(lines[-1], type=WatchLine).last_step == 59
