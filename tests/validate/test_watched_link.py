"""``augury run --watch`` when a real link becomes slow in the middle of a job."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from benchmarks.testbed.network import Network, can_make_networks
from benchmarks.validate.job import end, environment

torch = pytest.importorskip("torch")

pytestmark = [
    pytest.mark.more,
    pytest.mark.skipif(not can_make_networks(), reason="needs rights to make networks"),
]

WAIT_S = 300


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def wait_for_lines(path: Path, number: int, jobs: list[subprocess.Popen[bytes]]) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while len(lines(path)) < number and time.monotonic() < deadline_s:
        if any(job.poll() is not None for job in jobs):
            return
        time.sleep(0.05)


def test_a_link_that_becomes_slow_is_told(tmp_path: Path) -> None:
    with Network(2, "1gbit") as bed:
        out = bed.hosts[0].scratch / "run"
        command = [
            *(sys.executable, "-m", "augury", "run", "--out", str(out), "--steps", "3:5"),
            *("--watch", "20", "--", sys.executable, "-m", "benchmarks.testbed.train"),
            *("--model", "last", "--steps", "160"),
        ]
        jobs = [
            bed.start(host, command, environment(bed, host), tmp_path / f"log-{host}.txt")
            for host in range(2)
        ]
        try:
            file = bed.hosts[0].seen_from_outside / "run" / "watch.jsonl"
            wait_for_lines(file, 2, jobs)
            bed.set_rate("200mbit")
            for job in jobs:
                assert job.wait(WAIT_S) == 0, (tmp_path / "log-0.txt").read_text()
        finally:
            for job in jobs:
                end(job)
        found = lines(file)
    told = [line["text"] for line in found if line["changed"]]
    assert len(told) == 1, told
    assert "communication is slower by" in told[0]
    assert f"augury: {told[0]}" in (tmp_path / "log-0.txt").read_text()
    assert found[-1]["verdict"]["slower"] == "communication"
