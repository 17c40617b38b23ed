"""Windows that are spread over real jobs, which end normally or are killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

from augury.capture.launcher.run_summary import summarize_run
from augury.core.enums import StepState
from augury.core.measured_step import measured_run
from augury.ingest.open_run import open_run
from tests.capture.jobs import record, start, torchrun, write_training

pytestmark = [
    pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed"),
    pytest.mark.more,
]

SLEEP = "__import__('time').sleep(0.004)"


def read(out: Path, rank: int) -> dict:
    return json.loads((out / f"rank-{rank:05d}.json").read_text())


def light(record: dict) -> list[tuple[int, int]]:
    return [(w["first"], w["last"]) for w in record["windows"] if w["mode"] == "light"]


def test_ranks_open_the_same_windows_and_train_the_same(tmp_path: Path) -> None:
    """Windows follow rank 0's stride, over a job of unknown length."""
    job = torchrun(write_training(tmp_path, each_step=SLEEP), "700")
    plain = start(job)
    done = record(tmp_path / "run", job)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == sorted(plain.stdout.splitlines())
    first, second = read(tmp_path / "run", 0), read(tmp_path / "run", 1)
    assert (first["trouble"], second["trouble"]) == (None, None)
    assert light(first) == light(second)
    assert len(light(first)) >= 3
    assert light(first)[-1][0] > 100
    assert len(first["step_delay_ns"]) == 700
    inside = {step for a, b in light(first) for step in range(a, b)}
    assert first["speed"]
    assert not inside & {step for step, _ in first["speed"]}
    for told in (first, second):
        for window in told["windows"]:
            assert (window["trace"] is None) is window["dropped"]
            assert window["dropped"] or (tmp_path / "run" / window["trace"]).exists()
    trace = open_run(tmp_path / "run")
    assert [list(one) for one in trace.ranks[0].speed] == first["speed"]
    timed = set(trace.steps.step[trace.steps.state == StepState.TIMED].tolist())
    kept = [
        (w["first"], w["last"]) for w in first["windows"] if w["mode"] == "light" and w["trace"]
    ]
    assert timed == {step for a, b in kept for step in range(a + 2, b + 1)}
    found = measured_run(trace)
    assert found.num_ranks == 2
    assert found.num_steps > 500
    assert found.low_ns < found.step_ns < found.high_ns
    assert found.other_load is not None


def has_recorded_enough(out: Path) -> bool:
    """Checks the files on disk, because a killed process writes nothing more."""
    if not (out / "rank-00000.json").exists():
        return False
    told = read(out, 0)
    return len([w for w in told["windows"] if w["trace"]]) >= 4 and len(told["step_end_ns"]) > 80


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGKILL])
def test_a_job_that_is_ended_keeps_the_windows_that_were_complete(
    tmp_path: Path, signum: signal.Signals
) -> None:
    script, out = write_training(tmp_path, each_step=SLEEP), tmp_path / "run"
    augury = [sys.executable, "-m", "augury", "run", "--out", str(out), "--"]
    pids = tmp_path / "pid"
    script.write_text(
        f"import os; open({str(pids)!r}, 'w').write(str(os.getpid()))\n" + script.read_text()
    )
    job = subprocess.Popen(
        [*augury, sys.executable, str(script), "1000000"],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        deadline_s = time.monotonic() + 200
        while not has_recorded_enough(out) and time.monotonic() < deadline_s:
            assert job.poll() is None, job.communicate()
            time.sleep(0.05)
        os.kill(int(pids.read_text()), signum)
        _, said = job.communicate(timeout=100)
    finally:
        job.kill()
    assert job.returncode != 0
    assert "1 rank recorded" in said
    told = read(out, 0)
    complete = [w for w in told["windows"] if w["trace"]]
    assert len(complete) >= 3
    assert "detail" in {w["mode"] for w in complete}
    assert not [anomaly for anomaly in summarize_run(out).ledger if anomaly.name == "not-recorded"]
    assert measured_run(open_run(out)).num_steps > 30
