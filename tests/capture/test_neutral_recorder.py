"""The recorder without a framework: states, windows, troubles, the record, progress messages."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from augury.capture import process_identity
from augury.capture.rank_record import write_rank_record
from augury.capture.recorder import RecorderState, StepRecorder
from augury.capture.settings import Settings
from augury.core.trace.rank_record import RankRecord
from tests.capture.fake_framework import FakeFramework


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that no launcher started, and that registers nothing for its end."""
    for name in ("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "AUGURY_PROGRESS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(process_identity, "_learned", (0, 1))
    monkeypatch.setattr("atexit.register", lambda _action: None)


def recorder(out: Path, framework: FakeFramework, **settings: object) -> StepRecorder:
    return StepRecorder(Settings(out=str(out), **settings), framework)  # type: ignore[arg-type]


def train(recorder: StepRecorder, num_steps: int) -> None:
    for _ in range(num_steps):
        recorder.end_step(time.time_ns())


def read(out: Path) -> RankRecord:
    return msgspec.json.decode((out / "rank-00000.json").read_bytes(), type=RankRecord)


@pytest.mark.parametrize(
    ("settings", "rank", "is_stored"),
    [
        ({"calibrate": True}, 0, True),
        ({"calibrate": True}, 1, False),
        ({"calibrate": True, "calibrate_seconds": 0.0}, 0, False),
        ({}, 0, False),
        ({"calibrate": True, "ranks": (1,)}, 0, False),
    ],
)
def test_only_rank_0_of_a_calibrated_job_stores_modules(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    settings: dict[str, object],
    rank: int,
    is_stored: bool,
) -> None:
    monkeypatch.setattr(process_identity, "_learned", (rank, 2))
    framework = FakeFramework()
    train(recorder(tmp_path, framework, windows=((2, 4),), **settings), 9)
    assert ("store .modules.pickle" in framework.events) == is_stored


def test_windows_are_recorded_in_order(tmp_path: Path) -> None:
    framework = FakeFramework()
    train(recorder(tmp_path, framework, windows=((2, 4),), calibrate=True), 9)
    light = ["light", "probes", "step", "step", "stop"]
    detail = ["detail", "probes", "step", "step", "step", "stop"]
    assert framework.events == [*light, "calibrate", *detail, "store .modules.pickle"]
    record = read(tmp_path)
    assert [(w.first, w.last, w.mode) for w in record.windows] == [
        (2, 4, "light"),
        (5, 8, "detail"),
    ]
    assert [(tmp_path / str(w.trace)).read_text() for w in record.windows] == ["light", "detail"]
    assert record.trouble is None
    assert record.framework == "fake 1.0"
    assert [m.kind for m in record.memory] == ["parameter", "activation"]
    assert [c.durations_ns for c in record.calibration] == [[5]]
    assert [cpu.step for cpu in record.step_cpu] == [2, 3, 4]
    assert [step for step, _ in record.resumed] == [2, 4, 5]


def test_states_follow_the_windows(tmp_path: Path) -> None:
    found = recorder(tmp_path, FakeFramework(), windows=((2, 4),))
    states = [found._state]
    for _ in range(5):
        train(found, 1)
        states.append(found._state)
    between, inside = RecorderState.BETWEEN_WINDOWS, RecorderState.IN_WINDOW
    assert states == [RecorderState.WAITING, between, inside, inside, between, inside]


def test_a_rank_that_is_not_chosen_only_counts(tmp_path: Path) -> None:
    framework = FakeFramework()
    found = recorder(tmp_path, framework, windows=((2, 4),), ranks=(3,))
    train(found, 9)
    assert found._state is RecorderState.COUNTING
    assert framework.events == []
    record = read(tmp_path)
    assert (record.windows, len(record.step_end_ns), record.trouble) == ([], 8, None)


def test_a_profiler_that_does_not_start_costs_one_window(tmp_path: Path) -> None:
    framework = FakeFramework()
    framework.fails_to_open = True
    found = recorder(tmp_path, framework, windows=((2, 4),))
    train(found, 4)
    framework.fails_to_open = False
    train(found, 5)
    record = read(tmp_path)
    assert record.trouble == "RuntimeError: busy"
    assert [bool(w.trace) for w in record.windows] == [False, True]


def test_a_profiler_of_the_program_ends_the_window(tmp_path: Path) -> None:
    framework = FakeFramework()
    found = recorder(tmp_path, framework, windows=((2, 4),))
    train(found, 3)
    assert framework.on_rival is not None
    framework.on_rival()
    assert found._state is RecorderState.BETWEEN_WINDOWS
    train(found, 6)
    assert [bool(w.trace) for w in read(tmp_path).windows] == [False, True]


def test_an_open_range_ends_the_recording(tmp_path: Path) -> None:
    framework = FakeFramework()
    framework.open_ranges = ["epoch"]
    found = recorder(tmp_path, framework, windows=((2, 4),))
    train(found, 9)
    assert found._state is RecorderState.COUNTING
    assert framework.events.count("detail") == 0
    assert "the range 'epoch' was open" in str(read(tmp_path).trouble)


def test_failing_probes_do_not_cost_the_trace(tmp_path: Path) -> None:
    framework = FakeFramework()
    framework.fails_to_stop_probes = True
    train(recorder(tmp_path, framework, windows=((2, 4),)), 9)
    record = read(tmp_path)
    assert all(w.trace for w in record.windows)
    assert "probes are stuck" in str(record.trouble)


@pytest.mark.parametrize(
    ("asked", "rank", "is_shown"), [("1", 0, True), ("1", 1, False), ("", 0, False)]
)
def test_progress_is_printed_by_rank_0_when_asked(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    asked: str,
    rank: int,
    is_shown: bool,
) -> None:
    monkeypatch.setenv("AUGURY_PROGRESS", asked)
    monkeypatch.setattr(process_identity, "_learned", (rank, 1))
    train(recorder(tmp_path, FakeFramework(), windows=((2, 4),), calibrate=True), 9)
    printed = capsys.readouterr().err.splitlines()
    expected = [
        "augury: recording steps 3-4",
        "augury: timed windows complete, calibrating the network",
        "augury: recording steps 6-8 in detail",
        "augury: windows complete",
    ]
    assert printed == (expected if is_shown else [])


def test_progress_names_the_distance_of_spread_windows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AUGURY_PROGRESS", "1")
    found = recorder(tmp_path, FakeFramework())
    train(found, 30)
    printed = capsys.readouterr().err.splitlines()
    assert (
        printed[-1] == f"augury: windows complete, next ones every {found._schedule.stride} steps"
    )


def test_a_stderr_that_is_gone_harms_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUGURY_PROGRESS", "1")
    monkeypatch.setattr(sys, "stderr", None)
    train(recorder(tmp_path, FakeFramework(), windows=((2, 4),)), 9)
    assert read(tmp_path).trouble is None


def test_a_command_line_that_is_no_unicode_is_written(tmp_path: Path) -> None:
    write_rank_record(tmp_path, RankRecord(rank=0, world_size=1, command=["train.py", "\udc80"]))
    assert read(tmp_path).command == ["train.py", "?"]


def test_fields_of_the_first_schema_are_read_and_no_longer_written(tmp_path: Path) -> None:
    old = b'{"rank": 0, "world_size": 1, "window": [2, 4], "trace": "rank-0.trace.json"}'
    record = msgspec.json.decode(old, type=RankRecord)
    assert [(w.first, w.last, w.trace) for w in record.all_windows] == [(2, 4, "rank-0.trace.json")]
    write_rank_record(tmp_path, RankRecord(rank=0, world_size=1))
    assert not {b'"window"', b'"trace"'} & set(
        (tmp_path / "rank-00000.json").read_bytes().split(b":")
    )


def test_the_shared_recorder_imports_no_framework() -> None:
    code = (
        "import sys, augury.capture.recorder, augury.capture.bootstrap, augury.capture.api;"
        "assert not {'torch', 'augury.capture.torch'} & set(sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
