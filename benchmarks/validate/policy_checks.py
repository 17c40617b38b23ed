"""Checks of training under a plan besides speed: equal parameters, a new plan after the network
changed, termination when a rank dies, and low overhead."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from augury.core.plan.plan import Mode, communication_of
from augury.core.plan.plan_file import load_plan
from benchmarks.testbed.bed import Bed
from benchmarks.validate.checks import Check
from benchmarks.validate.job import JobError, bed_as_recorded, bed_of, end, environment
from benchmarks.validate.policy_settings import PolicyCase

NUM_STEPS = 50
TIMEOUT_S = 20
"""Timeout of process groups in which a rank is killed."""
WAIT_S = 120
SIGN_AT = 16
STEPS_AFTER = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Followed:
    """Results of one job."""

    parameters: Any
    own_share: float | None
    answered: int | None
    planned_anew: int | None


def plan_in(folder: Path) -> Path | None:
    """Returns a plan of a measured case: the first that is not stock DDP's, ours before others."""
    for policy in ("augury", "prophet", "p3"):
        path = folder / f"{policy}.plan.json"
        if path.exists() and communication_of(load_plan(path)).mode is Mode.PIECES:
            return path
    return None


class Follower:
    """Runs jobs of a case one after the other on a bed of their own."""

    def __init__(self, case: PolicyCase, plan: Path, suite: str) -> None:
        self._setting = case.setting
        self._plan = plan.resolve()
        self._suite = suite

    def checks(self) -> Iterator[Check]:
        is_pair = self._setting.num_ranks == 2
        with tempfile.TemporaryDirectory() as scratch, bed_of(self._setting) as bed:
            bed_as_recorded(bed, self._setting)
            folder = Path(scratch)
            stock = self._run(bed, folder / "stock", "--steps", str(NUM_STEPS))
            ours = self._run(bed, folder / "ours", "--steps", str(NUM_STEPS), *self._planned())
            if is_pair:
                yield self._check("bits-that-differ", _num_different(stock, ours), "", 0.0)
                own_pct = None if ours.own_share is None else 100 * ours.own_share
                yield self._check("own-work", own_pct, "%", 2.0)
                yield self._replanned(bed, folder / "halved")
                yield self._killed(bed, folder / "killed")
            else:
                other = self._run(bed, folder / "other", "--steps", str(NUM_STEPS), "--cap", "1")
                usual = _distance(stock, other)
                times = _distance(stock, ours) / usual if usual else float("inf")
                yield self._check("distance-over-that-of-bucket-sizes", times, "x", 2.0)

    def _planned(self) -> tuple[str, str]:
        return "--plan", str(self._plan)

    def _replanned(self, bed: Bed, folder: Path) -> Check:
        """Checks that a new plan is made at half the rate."""
        options = ("--steps", str(SIGN_AT + STEPS_AFTER), *self._planned(), "--replan")
        with self._job(bed, folder, *options, *_signs(folder, SIGN_AT)) as jobs:
            _await(folder / "reached", jobs, folder)
            try:
                bed.set_rate(f"{(self._setting.mbit or 0) // 2}mbit")
                (folder / "answered").touch()
                found = _finish(jobs, folder)
            finally:
                bed_as_recorded(bed, self._setting)
        after = None
        if found.answered is not None and found.planned_anew is not None:
            after = float(found.planned_anew - found.answered)
        return self._check("steps-until-planned-anew", after, "steps", 20.0)

    def _killed(self, bed: Bed, folder: Path) -> Check:
        """Measures the seconds until the other rank has ended with an error."""
        options = ("--steps", "1000000", *self._planned(), "--timeout", str(TIMEOUT_S))
        with self._job(bed, folder, *options, *_signs(folder, 10)) as jobs:
            _await(folder / "reached", jobs, folder)
            end(jobs[1])
            began = time.monotonic()
            try:
                code = jobs[0].wait(timeout=WAIT_S)
            except subprocess.TimeoutExpired:
                code = 0
            took_s = time.monotonic() - began
        return self._check(
            "seconds-beside-a-dead-rank", took_s if code else None, "s", TIMEOUT_S + 5
        )

    def _run(self, bed: Bed, folder: Path, *options: str) -> Followed:
        with self._job(bed, folder, *options) as jobs:
            return _finish(jobs, folder)

    @contextmanager
    def _job(
        self, bed: Bed, folder: Path, *options: str
    ) -> Iterator[list[subprocess.Popen[bytes]]]:
        """Starts one process per rank; they end when the context ends."""
        folder.mkdir()
        jobs = self._start(bed, folder, *options)
        try:
            yield jobs
        finally:
            for job in jobs:
                end(job)

    def _start(self, bed: Bed, folder: Path, *options: str) -> list[subprocess.Popen[bytes]]:
        command = [
            *(sys.executable, "-m", "benchmarks.testbed.followed"),
            *("--model", self._setting.model, *self._setting.options),
            *("--out", str(folder / "parameters.pt"), *options),
        ]
        return [
            bed.start(host, command, environment(bed, host), folder / f"log-{host}.txt")
            for host in range(self._setting.num_ranks)
        ]

    def _check(self, name: str, value: float | None, unit: str, at_most: float) -> Check:
        return Check(
            suite=self._suite,
            case=f"{self._setting.name}/{name}",
            kind="rightness",
            value=None if value is None else round(value, 3),
            unit=unit,
            at_most=at_most,
        )


def _signs(folder: Path, step: int) -> tuple[str, ...]:
    return "--signs", str(folder), "--sign-at", str(step)


def _await(sign: Path, jobs: list[subprocess.Popen[bytes]], folder: Path) -> None:
    deadline = time.monotonic() + WAIT_S
    while not sign.exists():
        if any(job.poll() is not None for job in jobs) or time.monotonic() > deadline:
            raise JobError(f"the job made no progress: {_said(folder)}")
        time.sleep(0.005)


def _finish(jobs: list[subprocess.Popen[bytes]], folder: Path) -> Followed:
    import torch

    for rank, job in enumerate(jobs):
        try:
            code = job.wait(timeout=WAIT_S)
        except subprocess.TimeoutExpired:
            raise JobError(f"rank {rank} did not end within {WAIT_S} s: {_said(folder)}") from None
        if code:
            raise JobError(f"the job ended with {code}: {_said(folder)}")
    told = json.loads((folder / "parameters.json").read_text())
    parameters = torch.load(folder / "parameters.pt", weights_only=True)
    return Followed(parameters=parameters, **told)


def _said(folder: Path) -> str:
    return (folder / "log-0.txt").read_text(errors="replace")[-800:]


def _num_different(one: Followed, other: Followed) -> float:
    """Number of values that differ in any bit."""
    import torch

    pairs = zip(one.parameters, other.parameters, strict=True)
    return float(sum(int((a.view(torch.int32) != b.view(torch.int32)).sum()) for a, b in pairs))


def _distance(one: Followed, other: Followed) -> float:
    pairs = zip(one.parameters, other.parameters, strict=True)
    return float(sum(float(((a - b).double() ** 2).sum()) for a, b in pairs) ** 0.5)
