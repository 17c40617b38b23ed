"""The process that times modules after a job: when it starts, when it ends, what is kept of it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from augury.capture.launcher.run_summary import summarize_run
from augury.capture.launcher.time_modules import time_modules
from augury.capture.rank_record import write_rank_record
from augury.capture.settings import Settings
from augury.capture.timing_process import TimingProcess
from augury.core.trace.module_timing import ModuleTiming
from augury.core.trace.rank_record import RankRecord
from augury.report.run_summary import run_summary_lines

TIMED = ModuleTiming(modules=["a.0", "a.1"], forward_ns=[5, 6], backward_ns=[9, 8])
COMPILED = ModuleTiming(modules=["a.0", "a.1"], variant="compiled", forward_ns=[3])


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    folder.mkdir()
    write_rank_record(folder, RankRecord(schema_version=2, rank=0, world_size=1, step_end_ns=[7]))
    return folder


def store(
    run: Path, *script: str, modules: tuple[str, ...] = ("a.0", "a.1"), **fields: object
) -> Settings:
    """Stores a snapshot whose process is a shell script in place of Python."""
    program = run.parent / "program.sh"
    program.write_text("\n".join(["#!/bin/sh", *script]))
    program.chmod(0o700)
    process = TimingProcess(
        executable=str(program),
        path=[],
        folder=str(run),
        modules=[*modules],
        **{"host": socket.gethostname()} | fields,
    )
    settings = Settings(out=str(run), calibrate=True, calibrate_seconds=20.0)
    snapshot = run / settings.snapshot
    snapshot.write_bytes(msgspec.json.encode(process) + b"\npickled")
    snapshot.chmod(0o600)
    return settings


def say(timing: ModuleTiming) -> str:
    return f"echo '{msgspec.json.encode(timing).decode()}'"


def timings(run: Path) -> list[ModuleTiming]:
    record = msgspec.json.decode((run / "rank-00000.json").read_bytes(), type=RankRecord)
    assert record.step_end_ns == [7]
    return record.module_timings


def left(run: Path) -> list[str]:
    return [name for name in os.listdir(run) if name != "rank-00000.json"]


def test_times_are_added_to_the_record_of_rank_0(run: Path) -> None:
    settings = store(run, say(TIMED), say(COMPILED))
    time_modules(settings, os.environ, has_succeeded=True)
    assert timings(run) == [TIMED, COMPILED]
    assert left(run) == []


def test_a_job_that_failed_is_not_followed_by_measurements(run: Path) -> None:
    settings = store(run, "touch started", say(TIMED))
    time_modules(settings, os.environ, has_succeeded=False)
    assert timings(run) == []
    assert left(run) == []


def test_without_seconds_nothing_is_measured(run: Path) -> None:
    settings = store(run, "touch started", say(TIMED))
    settings = Settings(out=settings.out, calibrate=True, calibrate_seconds=0)
    time_modules(settings, os.environ, has_succeeded=True)
    assert timings(run) == []
    assert left(run) == []


def test_the_process_ends_when_its_time_is_over(run: Path) -> None:
    """Processes that it has started end too."""
    settings = store(run, say(TIMED), "sleep 300 & echo $! >../pid", say(COMPILED), "wait")
    settings = Settings(out=settings.out, calibrate=True, calibrate_seconds=1.5)
    time_modules(settings, os.environ, has_succeeded=True)
    assert timings(run)[0] == TIMED
    sleeper = int((run.parent / "pid").read_text())
    for _ in range(100):
        if not is_running(sleeper):
            break
        time.sleep(0.1)
    assert not is_running(sleeper)


def test_temporary_files_of_compilers_that_are_ended_are_removed(run: Path) -> None:
    settings = store(run, 'echo "$6" >../folder', 'touch "$6/code.s"', say(TIMED), "sleep 300")
    settings = Settings(out=settings.out, calibrate=True, calibrate_seconds=1.0)
    time_modules(settings, os.environ, has_succeeded=True)
    assert timings(run)[0] == TIMED
    folder = (run.parent / "folder").read_text().strip()
    assert folder
    assert not os.path.exists(folder)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_an_interrupt_ends_the_process_and_keeps_the_times_so_far(run: Path) -> None:
    store(run, say(TIMED), "echo $$ >../pid", "exec sleep 300")
    program = (
        "import os, sys; from augury.capture.settings import Settings;"
        " from augury.capture.launcher.time_modules import time_modules;"
        " time_modules(Settings(out=sys.argv[1], calibrate=True, calibrate_seconds=200),"
        " os.environ, has_succeeded=True); print('goes on')"
    )
    caller = subprocess.Popen(
        [sys.executable, "-c", program, str(run)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    while not (run.parent / "pid").exists() and caller.poll() is None:
        time.sleep(0.05)
    time.sleep(0.2)
    caller.send_signal(signal.SIGINT)
    said, errors = caller.communicate(timeout=60)
    assert (said, errors) == ("goes on\n", "")
    assert timings(run) == [TIMED]
    assert left(run) == []


def test_a_process_that_fails_is_named_as_trouble(run: Path) -> None:
    settings = store(
        run,
        say(TIMED),
        "echo a warning >&2; echo no memory >&2; exit 3",
        modules=("a.0", "a.1", "b"),
    )
    time_modules(settings, os.environ, has_succeeded=True)
    first, second = timings(run)
    assert first == TIMED
    assert second.modules == ["b"]
    assert str(second.trouble).endswith("no memory")


def test_lines_that_are_no_timings_are_trouble(run: Path) -> None:
    settings = store(run, "echo '{\"modules\": []}'")
    time_modules(settings, os.environ, has_succeeded=True)
    (only,) = timings(run)
    assert only.modules == ["a.0", "a.1"]
    assert only.trouble is not None


def test_modules_that_could_not_be_stored_need_no_process(run: Path) -> None:
    refused = ModuleTiming(modules=["a"], trouble="its parameters are sharded")
    settings = store(run, "touch started", modules=(), refused=[refused])
    time_modules(settings, os.environ, has_succeeded=True)
    assert timings(run) == [refused]
    assert left(run) == []


def test_the_process_is_not_recorded_and_follows_no_plan(run: Path) -> None:
    settings = store(run, "env >../variables")
    given = os.environ | {"AUGURY_PLAN": "p", "AUGURY_RECORD": "{}", "MY_OWN": "1"}
    time_modules(settings, given, has_succeeded=True)
    names = {line.partition("=")[0] for line in (run.parent / "variables").read_text().splitlines()}
    assert "MY_OWN" in names
    assert not names & {"AUGURY_PLAN", "AUGURY_RECORD"}


def test_nothing_is_measured_on_another_host_than_that_of_rank_0(run: Path) -> None:
    settings = store(run, say(TIMED), host="elsewhere")
    time_modules(settings, os.environ, has_succeeded=True)
    assert timings(run) == []
    assert left(run) == []


def test_a_snapshot_that_others_may_write_is_not_loaded(run: Path) -> None:
    settings = store(run, say(TIMED))
    (run / settings.snapshot).chmod(0o666)
    time_modules(settings, os.environ, has_succeeded=True)
    assert timings(run) == []
    assert left(run) == []


def test_a_damaged_snapshot_is_removed(run: Path) -> None:
    settings = Settings(out=str(run), calibrate=True)
    (run / settings.snapshot).write_bytes(b"{]\n")
    time_modules(settings, os.environ, has_succeeded=True)
    assert timings(run) == []
    assert left(run) == []


def test_the_summary_says_why_no_module_was_timed(run: Path) -> None:
    refused = ModuleTiming(modules=["a"], trouble="its parameters are sharded")
    settings = store(run, modules=(), refused=[refused])
    time_modules(settings, os.environ, has_succeeded=True)
    lines = run_summary_lines(summarize_run(run), out=run, exit_code=0)
    assert "  no module was timed: a: its parameters are sharded" in lines


def test_the_summary_has_one_line_about_modules(run: Path) -> None:
    trouble = ModuleTiming(modules=["a"], variant="compiled", trouble="no compiler")
    again = ModuleTiming(modules=["b"], variant="compiled", trouble="no compiler")
    settings = store(run, say(TIMED), say(COMPILED), say(trouble), say(again))
    before = run_summary_lines(summarize_run(run), out=run, exit_code=0)
    time_modules(settings, os.environ, has_succeeded=True)
    lines = run_summary_lines(summarize_run(run), out=run, exit_code=0)
    (added,) = set(lines) - set(before)
    assert added == (
        "  timed: 2 modules in 1 group of equal ones, 1 of them compiled too;"
        " without times: a: no compiler"
    )
