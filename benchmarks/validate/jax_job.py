"""A JAX job recorded unmodified: the wire reader does not depend on the framework."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from augury.core.errors import AuguryError
from augury.core.wire import MessageKind, Wire
from augury.ingest.wire.read_wire import read_wire
from benchmarks.testbed.bed import Bed
from benchmarks.testbed.loopback import Loopback
from benchmarks.testbed.network import Network, can_make_networks
from benchmarks.validate.checks import Check
from benchmarks.validate.job import ROOT, JobError, end, environment, gather
from benchmarks.validate.wire_checks import bytes_check, bytes_of_wire

SUITE = "wire"
PYTHON = Path(os.environ.get("JAX_PYTHON", ROOT / ".venv-jax" / "bin" / "python"))
PORT = 29531
NUM_RANKS = 2
NUM_STEPS = 30
TIMEOUT_S = 180
NOT_INFERRED_PCT = 5.0
"""Concurrent sums interleave their messages, and lengths alone do not always tell which message a
byte belongs to."""


def jax_checks(folder: Path, *, again: bool) -> Iterator[Check]:
    try:
        if again:
            print("jax: two processes, recorded unmodified", file=sys.stderr, flush=True)
            record_jax(folder)
        elif not (folder / "report.json").exists():
            return
        wire = read_wire(folder / "run")
    except (AuguryError, JobError, OSError, subprocess.SubprocessError) as error:
        yield bytes_check("jax/bytes/not-received", None, trouble=str(error))
        return
    # The last gRPC message of JAX's coordinator is never read by its peer.
    yield from bytes_of_wire(wire, "jax/bytes", control=False)
    report = json.loads((folder / "report.json").read_text())
    yield bytes_check(
        "jax/bytes/all-reduces-off",
        payload_of_collectives(wire) - payload_of_ring(report["summed_bytes"], report["steps"]),
    )

    num_sums = len(report["summed_bytes"]) * report["steps"]
    inferred = wire.collectives
    is_exact = inferred.payload_bytes == 2 * (NUM_RANKS - 1) * inferred.size_bytes
    yield Check(
        suite=SUITE,
        case="jax/all-reduces-not-inferred",
        kind="bytes",
        value=round(100 * (1 - min(int(is_exact.sum()), num_sums) / num_sums), 2),
        unit="%",
        at_most=NOT_INFERRED_PCT,
    )


def record_jax(folder: Path) -> None:
    """Records the job. Afterwards ``folder`` has ``run``, logs, and the job's own report."""
    if not PYTHON.exists():
        raise JobError(f"{PYTHON} does not exist: run make env-jax")
    folder = folder.resolve()  # a host's processes start in another folder
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    bed: Bed = Network(NUM_RANKS) if can_make_networks() else Loopback(NUM_RANKS)
    with bed:
        jobs = [
            bed.start(host, command(bed, host, folder), environment(bed, host), log(folder, host))
            for host in range(NUM_RANKS)
        ]
        try:
            attend(jobs)
        finally:
            for job in jobs:
                end(job)
        failed = [host for host, job in enumerate(jobs) if job.returncode]
        if failed:
            said = log(folder, failed[0]).read_text(errors="replace")
            raise JobError(f"JAX on host {failed[0]}: {said[-800:]}")
        # Augury gathers no files on hosts of a framework that it does not support.
        gather(bed, folder / "run", told=False)


def command(bed: Bed, host: int, folder: Path) -> list[str]:
    out = bed.hosts[host].scratch / "run"
    return [
        *(sys.executable, "-m", "augury", "run", "--wire", "--out", str(out), "--"),
        *(str(PYTHON), str(ROOT / "benchmarks" / "testbed" / "jax_train.py")),
        *("--coordinator", f"{bed.hosts[0].address}:{PORT}", "--processes", str(NUM_RANKS)),
        *("--process", str(host), "--steps", str(NUM_STEPS)),
        *("--report", str(folder / "report.json")),
    ]


def log(folder: Path, host: int) -> Path:
    return folder / f"log-{host}.txt"


def attend(jobs: list[subprocess.Popen[bytes]]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while any(job.poll() is None for job in jobs):
        if any(job.returncode for job in jobs):
            return  # the others would wait for it
        if time.monotonic() > deadline:
            raise JobError(f"the JAX job took more than {TIMEOUT_S} s")
        time.sleep(0.05)


def payload_of_collectives(wire: Wire) -> int:
    rows = wire.messages
    return int(rows.payload_bytes[rows.kind == np.uint8(MessageKind.COLLECTIVE)].sum())


def payload_of_ring(summed_bytes: list[int], num_steps: int) -> int:
    """Payload of a ring: each byte travels once around to be reduced and once more to be
    distributed, except for the last hop."""
    return 2 * (NUM_RANKS - 1) * sum(summed_bytes) * num_steps
