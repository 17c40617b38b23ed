"""Runs the job of one network on the bed: communications, layers and strategies, interleaved."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

from benchmarks.validate.job import JobError, bed_as_recorded, bed_of, end, environment
from benchmarks.validate.settings import Setting

ROUNDS = {2: 10, 4: 6}
"""Rounds by number of ranks: with more ranks there are more strategies, and steps take longer."""
TIMEOUT_S = 300


def measure(setting: Setting, folder: Path) -> None:
    """Runs the job. Afterwards ``folder`` has ``job.json``, logs, and the setting."""
    folder = folder.resolve()  # a host's processes start in another folder
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    command = [
        *(sys.executable, "-m", "benchmarks.testbed.strategies.job", "--cnn", setting.model),
        *("--rounds", str(ROUNDS[setting.num_ranks]), "--out", str(folder / "job.json")),
    ]
    begin = time.monotonic()
    with bed_of(setting) as bed:
        bed_as_recorded(bed, setting)
        jobs = [
            bed.start(host, command, environment(bed, host), folder / f"log-{host}.txt")
            for host in range(setting.num_ranks)
        ]
        try:
            _wait(jobs, folder)
        finally:
            for job in jobs:
                end(job)
    took_s = round(time.monotonic() - begin, 1)
    (folder / "setting.json").write_text(json.dumps(asdict(setting) | {"took_s": took_s}, indent=1))


def _wait(jobs: list[subprocess.Popen[bytes]], folder: Path) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while any(job.poll() is None for job in jobs):
        failed = [host for host, job in enumerate(jobs) if job.returncode]
        if failed or time.monotonic() > deadline:
            log = folder / f"log-{failed[0] if failed else 0}.txt"
            raise JobError(f"the job made no progress: {log.read_text(errors='replace')[-800:]}")
        time.sleep(0.1)
    if any(job.returncode for job in jobs):
        raise JobError("a rank failed at the end: see its log")
