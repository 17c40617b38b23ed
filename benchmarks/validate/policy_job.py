"""Runs a job that is recorded, waits while plans are made, then follows one plan after the other:
the policies are compared within one process, interleaved."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from augury.core.plan.plan import Mode, communication_of
from augury.core.plan.plan_file import load_plan
from augury.runtime.plan_decision import best_caps
from benchmarks.testbed.bed import Bed
from benchmarks.testbed.trial import has_trial
from benchmarks.validate.job import (
    JobError,
    bed_as_recorded,
    bed_of,
    end,
    environment,
    gather,
)
from benchmarks.validate.policy_settings import CAPS_MB, PolicyCase

STOCK = "ddp"
OURS = "augury"
WINDOWS = ((6, 14), (18, 26))
FIRST_STEPS = 34
"""Both windows, three detailed steps, and plain steps."""
WARM_UP = 2
PILOT = 5
MEASURED = 8
ROUNDS = 4
WAIT_S = 300
LAYOUTS = "layouts.json"
TRIAL = "trial.json"
TRIAL_BUCKETS = "trial-buckets"


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A block of steps; ``label`` is the policy."""

    label: str
    words: str

    def told(self, num_steps: int) -> str:
        return f"{self.words}:{num_steps}@{self.label}"


def measure(case: PolicyCase, folder: Path) -> None:
    """Runs a case. Afterwards ``folder`` has ``run``, a plan of every policy, each rank's times,
    and the predictions, which are made before any policy is followed."""
    folder = folder.resolve()
    shutil.rmtree(folder, ignore_errors=True)
    gate = folder / "gate"
    gate.mkdir(parents=True)
    with bed_of(case.setting) as bed:
        bed_as_recorded(bed, case.setting)
        jobs = [
            bed.start(host, _command(case, bed, gate, folder), environment(bed, host), log)
            for host, log in enumerate(_logs(case, folder))
        ]
        try:
            _lead(_Gate(gate, jobs, folder), case, bed, folder)
        finally:
            for job in jobs:
                end(job)
    shutil.rmtree(gate)
    (folder / "setting.json").write_text(json.dumps(asdict(case.setting), indent=1))


def _lead(gate: _Gate, case: PolicyCase, bed: Bed, folder: Path) -> None:
    gate.wait()
    gather(bed, folder / "run")
    blocks = plan(case, folder)
    for cap in CAPS_MB:
        gate.go(Block(label=f"pilot-{cap:g}", words=f"cap={cap:g}").told(PILOT))
    if "ddp-best" in case.policies:
        found = {cap: gate.took_ns(1 + place) for place, cap in enumerate(CAPS_MB)}
        best = min(found, key=found.__getitem__)
        blocks.append(Block(label="ddp-pilot", words=f"cap={best:g}"))
    ours = folder / f"{OURS}.plan.json"
    if has_trial() and ours.exists():
        # Before the rounds: the rest of the job does not depend on the outcome.
        gate.go(Block(label="trial", words=f"trial={ours}").told(0))
        (folder / TRIAL).write_text(json.dumps(gate.last_block()["trial"]))
        blocks += _trial_buckets(ours)
    for turn in range(ROUNDS):
        # In alternating direction, so that no block always follows the same one.
        for block in blocks if turn % 2 == 0 else reversed(blocks):
            gate.go(block.told(MEASURED))
    gate.end()


def plan(case: PolicyCase, folder: Path) -> list[Block]:
    """Plans as a user does, with one command per policy, while the job leaves the cores idle.
    Policies with the same buckets of stock DDP share a block, which has the name of the first."""

    def ask(policy: str) -> Path:
        path = folder / f"{policy}.plan.json"
        answer = _schedule(folder / "run", "--policy", policy, "-o", str(path))
        (folder / f"{policy}.predicted.json").write_text(answer)
        if policy != OURS and not path.exists():
            _save_unprofitable(folder / "run", policy, path)
        return path

    # Stock DDP first: policies with its buckets share its measurement.
    policies = sorted(case.policies, key=lambda policy: policy != STOCK)
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        paths = dict(zip(policies, pool.map(ask, policies), strict=True))
    labels = labels_of(paths)
    (folder / LAYOUTS).write_text(json.dumps(labels, indent=1))
    return [
        Block(label=policy, words=_words(policy, paths[policy]))
        for policy, label in labels.items()
        if label == policy
    ]


def _save_unprofitable(run: Path, policy: str, path: Path) -> None:
    """Saves a plan that gains nothing, which the command does not write. It is measured too, so
    that predictions of losses are compared."""
    from augury import api
    from augury.core.plan.plan_file import save_plan

    save_plan(api.open(run).schedule(policy=policy).make_plan(), path, force=False)


def labels_of(paths: Mapping[str, Path]) -> dict[str, str]:
    """Returns for each policy the first policy that makes DDP use the same buckets, from the files
    of the plans. Where our search found no plan that pays off, DDP stays as it is."""
    first: dict[str, str] = {}
    labels = {}
    for policy, path in paths.items():
        plan = load_plan(path) if path.exists() else None
        if plan is None:
            labels[policy] = STOCK
        elif communication_of(plan).mode is not Mode.DDP_BUCKETS:
            labels[policy] = policy
        else:
            buckets = [
                sorted(part.gradient for part in piece.slices)
                for piece in communication_of(plan).order.pieces
            ]
            labels[policy] = first.setdefault(json.dumps(buckets), policy)
    return labels


def _trial_buckets(ours: Path) -> list[Block]:
    """Returns the bucket list that the trial compares with a plan in pieces."""
    plan = load_plan(ours)
    caps = best_caps(plan) if communication_of(plan).mode is Mode.PIECES else ()
    return [Block(label=TRIAL_BUCKETS, words=_caps(caps))] if caps else []


def _caps(caps_bytes: Sequence[int]) -> str:
    return "cap=" + ",".join(f"{cap / (1 << 20)!r}" for cap in caps_bytes)


def _words(policy: str, path: Path) -> str:
    """Returns the words of a block; a plan equal to stock DDP is measured as stock DDP."""
    if policy == STOCK:
        return "default"
    section = communication_of(load_plan(path))
    if section.mode is Mode.DDP_BUCKETS:
        return _caps(section.bucket_caps_bytes)
    return f"plan={path}"


def _schedule(run: Path, *options: str) -> str:
    command = [sys.executable, "-m", "augury", "schedule", str(run), *options, "--json"]
    said = subprocess.run(
        command, env=environment(None, 0), capture_output=True, text=True, timeout=300, check=False
    )
    if said.returncode:
        raise JobError(f"cannot plan: {(said.stderr or said.stdout).strip()[-300:]}")
    return said.stdout


class _Gate:
    """File-based handshake with the job: see ``benchmarks.testbed.train``."""

    def __init__(self, folder: Path, jobs: Sequence[subprocess.Popen[bytes]], logs: Path) -> None:
        self._folder, self._jobs, self._logs = folder, jobs, logs
        self._block = 0

    def wait(self) -> None:
        """Waits until the job stops before the next block."""
        deadline = time.monotonic() + WAIT_S
        while not (self._folder / f"ready-{self._block}").exists():
            failed = [host for host, job in enumerate(self._jobs) if job.poll()]
            if failed or time.monotonic() > deadline:
                log = self._logs / f"log-{failed[0] if failed else 0}.txt"
                raise JobError(
                    f"the job made no progress: {log.read_text(errors='replace')[-800:]}"
                )
            time.sleep(0.01)

    def go(self, words: str) -> None:
        """Starts a block and waits until it is done."""
        self._answer(words)
        self.wait()

    def end(self) -> None:
        self._answer("end")
        for job in self._jobs:
            if job.wait(timeout=WAIT_S):
                raise JobError(f"the job ended with {job.returncode}")

    def last_block(self) -> dict[str, Any]:
        """Returns the job's report of the last completed block."""
        found: dict[str, Any] = json.loads((self._folder / f"ready-{self._block}").read_text())
        return found

    def took_ns(self, block: int) -> float:
        """Returns the median step before ``block``."""
        times: dict[str, Any] = json.loads((self._folder / f"ready-{block}").read_text())
        stamps: list[int] = times["stamps_ns"][times["warm_up"] :]
        return median(b - a for a, b in pairwise(stamps))

    def _answer(self, words: str) -> None:
        partial = self._folder / f"go-{self._block}.partial"
        partial.write_text(words)
        partial.rename(self._folder / f"go-{self._block}")
        self._block += 1


def _command(case: PolicyCase, bed: Bed, gate: Path, folder: Path) -> list[str]:
    setting = case.setting
    windows = ",".join(f"{first}:{last}" for first, last in WINDOWS)
    out = bed.hosts[0].scratch / "run"
    return [
        *(sys.executable, "-m", "augury", "run", "--calibrate", "--calibrate-seconds", "0"),
        *("--out", str(out)),
        *("--steps", windows, "--"),
        *(sys.executable, "-m", "benchmarks.testbed.train", "--model", setting.model),
        *("--steps", str(FIRST_STEPS), "--cap", setting.cap, *setting.options),
        *("--gate", str(gate), "--told", "--warm-up", str(WARM_UP), "--times", str(folder)),
    ]


def _logs(case: PolicyCase, folder: Path) -> list[Path]:
    return [folder / f"log-{host}.txt" for host in range(case.setting.num_ranks)]
