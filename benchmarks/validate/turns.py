"""A job that runs a block of steps on request and is paused otherwise."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.testbed.bed import Bed
from benchmarks.validate.job import JobError, end, environment, training
from benchmarks.validate.schedule import Schedule
from benchmarks.validate.settings import Setting

FIRST_STEPS = 8
WARM_UP = 2
"""Steps at the start of a block that are not measured."""
WAIT_S = 120


class TurnTaker:
    """A job that is started, released ``rounds`` times for ``steps`` measured steps, and ended."""

    def __init__(
        self,
        setting: Setting,
        bed: Bed,
        folder: Path,
        port: int,
        *,
        rounds: int,
        steps: int,
        before: Sequence[Sequence[str]] = (),
    ) -> None:
        """Starts the job. ``before`` has for each host the prefix of the command there."""
        self._setting, self._bed, self._folder, self._port = setting, bed, folder, port
        self._rounds, self._steps, self._before = rounds, steps, before
        self._gate = folder / "gate"
        self._jobs: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        self._gate.mkdir(parents=True)
        command = [
            *training(Schedule(self._setting), self._gate, self._folder),
            # After the options of the schedule, which it overrides.
            *("--steps", str(FIRST_STEPS), "--gate", str(self._gate)),
            *("--blocks", f"base:{self._steps}", "--rounds", str(self._rounds)),
            *("--warm-up", str(WARM_UP)),
        ]
        for host in range(self._setting.num_ranks):
            words = [*(self._before[host] if self._before else ()), *command]
            told = environment(self._bed, host, self._port)
            self._jobs.append(self._bed.start(host, words, told, self._log(host)))

    def go(self, block: int) -> None:
        (self._gate / f"go-{block}").touch()

    def wait_for(self, block: int) -> None:
        """Waits until the job stops before this block, or has ended after the last one."""
        deadline = time.monotonic() + WAIT_S
        ready = self._gate / f"ready-{block}"
        while not ready.exists():
            codes = [job.poll() for job in self._jobs]
            if block == self._rounds and all(code == 0 for code in codes):
                return
            if any(codes) or time.monotonic() > deadline:
                log = self._log(0).read_text(errors="replace")
                raise JobError(f"{self._setting.name} made no progress: {log[-500:]}")
            time.sleep(0.01)

    def end(self) -> None:
        for job in self._jobs:
            end(job)

    def block_ns(self) -> list[float]:
        """Returns the median step of every block."""
        blocks = [block["stamps_ns"][WARM_UP:] for block in self._times()["blocks"][1:]]
        return [median(b - a for a, b in pairwise(stamps)) for stamps in blocks]

    def loss(self) -> str:
        """Returns the loss after the last block, to the last bit."""
        return str(self._times()["last_loss"])

    def _log(self, host: int) -> Path:
        return self._folder / f"log-{host}.txt"

    def _times(self) -> dict[str, Any]:
        times: dict[str, Any] = json.loads((self._folder / "times-00000.json").read_text())
        return times
