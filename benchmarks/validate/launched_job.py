"""Runs a program under ``augury run`` on every host of a test bed, as users start it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks.testbed.bed import Bed
from benchmarks.validate.job import bed_as_recorded, bed_of, end, environment, gather
from benchmarks.validate.running_job import RunningJob
from benchmarks.validate.settings import Setting

PORT = 29521
Command = Callable[[int, str], list[str]]
"""Returns the command that a user starts on a host, given the address of the first one."""


def run_launched(
    setting: Setting,
    folder: Path,
    name: str,
    command: Command,
    *options: str,
    during: Callable[[Bed, RunningJob], None] | None = None,
) -> None:
    """Runs the program, and gathers its run in a folder of that name. ``options`` are those of
    ``augury run``; ``during`` may change the bed while the job runs."""
    logs = [log_of(folder, name, host) for host in range(setting.num_ranks)]
    with bed_of(setting) as bed:
        bed_as_recorded(bed, setting)
        out = bed.hosts[0].scratch / "run"
        augury = [sys.executable, "-m", "augury", "run", "--out", str(out), *options, "--"]
        launchers = [
            bed.start(
                host,
                [*augury, *command(host, bed.hosts[0].address)],
                _environment(bed, host),
                log,
            )
            for host, log in enumerate(logs)
        ]
        try:
            job = RunningJob(launchers, logs)
            if during is not None:
                during(bed, job)
            job.wait()
        finally:
            for launcher in launchers:
                end(launcher)
        gather(bed, folder / name)


def torchrun(host: int, address: str, num_hosts: int) -> list[str]:
    """Returns the launcher of one process per host, without the program."""
    return [
        *(sys.executable, "-m", "torch.distributed.run"),
        *(f"--nnodes={num_hosts}", "--nproc-per-node=1", f"--node-rank={host}"),
        *(f"--master-addr={address}", f"--master-port={PORT}"),
    ]


def said(folder: Path, name: str) -> str:
    """Returns everything that the hosts of a job printed."""
    logs = sorted(folder.glob(f"log-{name}-*.txt"))
    return "\n".join(log.read_text(errors="replace") for log in logs)


def log_of(folder: Path, name: str, host: int) -> Path:
    return folder / f"log-{name}-{host}.txt"


def _environment(bed: Bed, host: int) -> dict[str, str]:
    """Returns the environment of a launcher, which numbers the ranks itself."""
    own = environment(bed, host)
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
        own.pop(name, None)
    offline = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    return own | offline | {"AUGURY_PROGRESS": "1"}
