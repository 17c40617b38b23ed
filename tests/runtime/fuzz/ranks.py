"""A set of ranks that runs many programs, and a watchdog that ends it when it stands still."""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import torch._dynamo  # noqa: F401 - optimizers import it late: once, before ranks are forked

from tests.runtime.fuzz.program import Program
from tests.runtime.fuzz.worker import serve

STANDSTILL_S = 60.0
"""Without a step on any rank, a program hangs."""
ALONE_S = 20.0
"""The same, once a rank has reported a failure: others may wait for it in vain."""
DUMP_S = 1.0
STOCK_MARGIN = 4.0
"""The second run of stock DDP is one sample of how far rounding carries."""


@dataclass
class Result:
    """What all ranks reported of a program; empty where a rank did not."""

    program: Program
    reports: list[dict[str, Any]] = field(default_factory=list)
    hung: str = ""
    """Where ranks stood when they were ended; empty: they ended by themselves."""
    seconds: float = 0.0
    stock_distance: float = 0.0
    """How far two runs of stock DDP are apart that differ in bucket size and in the last bit of
    the first parameters, where it was measured."""

    @property
    def differences(self) -> list[str]:
        found = []
        for rank, report in enumerate(self.reports):
            if "crash" in report:
                found.append(f"rank {rank}: {report['crash']}")
            found += [f"rank {rank}: {one}" for one in report.get("differences", ())]
        return found

    @property
    def distance(self) -> float:
        return max((report.get("distance", math.inf) for report in self.reports), default=math.inf)

    @property
    def is_ill_conditioned(self) -> bool:
        """Differs by no more than stock DDP does from itself when only rounding differs."""
        return bool(self.differences) and self.distance <= STOCK_MARGIN * self.stock_distance

    @property
    def is_stock_hang(self) -> bool:
        """Stock DDP itself hangs: no rank had reached the run under the plan."""
        places = [line for line in self.hung.splitlines() if line.startswith("rank ")]
        return bool(places) and all(": stock, step" in place for place in places)

    @property
    def is_fine(self) -> bool:
        if self.hung:
            return self.is_stock_hang
        return not self.differences or self.is_ill_conditioned

    def least(self, name: str) -> int:
        return min((report.get(name, 0) for report in self.reports), default=0)


class Ranks:
    """Forked from this process, which must not have used torch beyond importing it."""

    def __init__(self, num_ranks: int, standstill_s: float = STANDSTILL_S) -> None:
        self.num_ranks = num_ranks
        self._standstill_s = standstill_s
        self.num_run = 0
        self._folder = tempfile.TemporaryDirectory(prefix="augury-fuzz-")
        folder = Path(self._folder.name)
        context = multiprocessing.get_context("fork")
        self._errors = [folder / f"errors.{rank}" for rank in range(num_ranks)]
        pairs = [context.Pipe() for _ in range(num_ranks)]
        self._pipes = [ours for ours, _ in pairs]
        self._processes = []
        for rank, (_, theirs) in enumerate(pairs):
            args = (rank, num_ranks, folder / "store", theirs, self._errors[rank])
            process = context.Process(target=serve, args=args, daemon=True)
            process.start()
            self._processes.append(process)
        for _, theirs in pairs:
            theirs.close()

    def run(self, program: Program, *, is_planned: bool = True) -> Result:
        began = time.monotonic()
        result = Result(program)
        reports: dict[int, dict[str, Any]] = {}
        places = ["not started"] * self.num_ranks
        self.num_run += 1
        try:
            for pipe in self._pipes:
                pipe.send((program, is_planned))
            while len(reports) < self.num_ranks and not result.hung:
                self._listen(reports, places, result)
        except (EOFError, OSError) as error:
            result.hung = f"a rank died ({error!r}): {self._where(places)}"
        result.reports = [reports.get(rank, {}) for rank in range(self.num_ranks)]
        result.seconds = time.monotonic() - began
        return result

    def _listen(
        self, reports: dict[int, dict[str, Any]], places: list[str], result: Result
    ) -> None:
        left = [pipe for rank, pipe in enumerate(self._pipes) if rank not in reports]
        has_failed = any("crash" in one or one.get("differences") for one in reports.values())
        standstill_s = min(ALONE_S, self._standstill_s) if has_failed else self._standstill_s
        ready = wait(left, timeout=standstill_s)
        if not ready:
            result.hung = self._where(places)
        for pipe in ready:
            rank = self._pipes.index(pipe)
            kind, content = pipe.recv()
            if kind == "done":
                reports[rank] = content
                places[rank] = "done"
            else:
                places[rank] = f"{kind}, step {content}"

    def _where(self, places: list[str]) -> str:
        """With the stacks of the ranks that live."""
        for process in self._processes:
            if process.is_alive() and process.pid is not None:
                os.kill(process.pid, signal.SIGUSR1)
        time.sleep(DUMP_S)
        told = [f"rank {rank}: {place}" for rank, place in enumerate(places)]
        for rank, path in enumerate(self._errors):
            told.append(f"--- rank {rank}")
            with suppress(OSError):
                told.append(path.read_text()[-6000:])
        return "\n".join(told)

    def end(self) -> None:
        """By pid: whatever they are doing."""
        for pipe in self._pipes:
            with suppress(OSError):
                pipe.send(None)
        for process in self._processes:
            process.join(timeout=2.0)
            if process.is_alive():
                process.kill()
                process.join()
        for pipe in self._pipes:
            pipe.close()
        self._folder.cleanup()
