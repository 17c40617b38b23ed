"""Runs a setting's job on a bed, recorded and then changed block by block, and saves its files."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

from benchmarks.testbed.bed import Bed, Way
from benchmarks.testbed.loopback import Loopback
from benchmarks.testbed.network import Network
from benchmarks.validate.schedule import WARM_UP, Schedule
from benchmarks.validate.settings import Change, Setting
from benchmarks.validate.withhold import withhold_changes

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 420
PORT = 29511


class JobError(Exception):
    pass


def record(setting: Setting, folder: Path, *, recorded: bool = True) -> None:
    """Runs the job. Afterwards ``folder`` has ``run``, each rank's times, logs, and the setting."""
    folder = folder.resolve()  # a host's processes start in another folder
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    gate = folder / "gate"
    gate.mkdir()
    schedule = Schedule(setting)
    begin = time.monotonic()
    with bed_of(setting) as bed:
        bed_as_recorded(bed, setting)
        command = training(schedule, gate, folder)
        if recorded:
            # Node-local, as on hosts that share no file system.
            command = [*augury_run(bed.hosts[0].scratch / "run", schedule), *command]
        jobs = [
            bed.start(host, command, environment(bed, host), folder / f"log-{host}.txt")
            for host in range(setting.num_ranks)
        ]
        try:
            attend(bed, setting, [None, *schedule.changes] * setting.rounds, gate, jobs)
        finally:
            for job in jobs:
                end(job)
        failed = [host for host, job in enumerate(jobs) if job.returncode]
        if failed:
            log = (folder / f"log-{failed[0]}.txt").read_text(errors="replace")
            raise JobError(
                f"host {failed[0]} ended with {jobs[failed[0]].returncode}: {log[-800:]}"
            )
        if recorded:
            gather(bed, folder / "raw")
            withhold_changes(folder / "raw", folder / "run", schedule.kept)
    shutil.rmtree(gate)
    took_s = round(time.monotonic() - begin, 1)
    (folder / "setting.json").write_text(json.dumps(asdict(setting) | {"took_s": took_s}, indent=1))


def bed_of(setting: Setting) -> Bed:
    if setting.mbit is None:
        return Loopback(setting.num_ranks)
    return Network(setting.num_ranks, f"{setting.mbit}mbit", ordinary=setting.ordinary)


def bed_as_recorded(bed: Bed, setting: Setting) -> None:
    _bed_healthy(bed, setting)
    fault = setting.fault
    if fault is None or setting.mbit is None:
        return
    assert isinstance(bed, Network)
    if fault.rate != 1.0 or fault.lossy:
        rate = f"{round(1000 * setting.mbit * fault.rate)}kbit"
        bed.set_rate(rate, fault.host, "out", lossy=fault.lossy)
    if fault.slow != 1.0:
        bed.set_quota((setting.quota or 1.0) / fault.slow, fault.host)
    if fault.flow_mbit is not None:
        bed.set_flow(fault.flow_mbit, fault.host)


def _bed_healthy(bed: Bed, setting: Setting) -> None:
    if setting.mbit is not None:
        bed.set_rate(f"{setting.mbit}mbit")
        bed.set_quota(setting.quota)
    if isinstance(bed, Network):
        bed.set_flow(None)


def bed_changed(bed: Bed, setting: Setting, change: Change) -> None:
    if change.is_healed:
        _bed_healthy(bed, setting)
    if change.rate != 1.0 and setting.mbit is not None:
        which: tuple[int | None, Way] = change.link or (None, "both")
        bed.set_rate(f"{round(1000 * setting.mbit * change.rate)}kbit", *which)
    if change.slow is not None:
        host, factor = change.slow
        bed.set_quota((setting.quota or 1.0) / factor, host)


def training(schedule: Schedule, gate: Path, times: Path) -> list[str]:
    setting = schedule.setting
    rounds = ["--rounds", str(setting.rounds), "--warm-up", str(WARM_UP), "--gate", str(gate)]
    return [
        *(sys.executable, "-m", "benchmarks.testbed.train", "--model", setting.model),
        *("--steps", str(schedule.first_steps), "--cap", setting.cap, *setting.options),
        *(("--blocks", *schedule.blocks, *rounds) if schedule.blocks else ()),
        *("--times", str(times)),
    ]


def augury_run(out: Path, schedule: Schedule) -> list[str]:
    windows = ",".join(f"{first}:{last}" for first, last in schedule.windows)
    augury = [sys.executable, "-m", "augury", "run", "--calibrate", "--calibrate-seconds", "0"]
    augury += ["--out", str(out)]
    return [*augury, *(["--wire"] if schedule.setting.wire else []), "--steps", windows, "--"]


def environment(bed: Bed | None, host: int, port: int = PORT) -> dict[str, str]:
    found = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }
    if bed is not None:
        found |= {
            "RANK": str(host),
            "WORLD_SIZE": str(len(bed.hosts)),
            "LOCAL_RANK": "0",
            "MASTER_ADDR": bed.hosts[0].address,
            "MASTER_PORT": str(port),
            "GLOO_SOCKET_IFNAME": bed.hosts[host].interface,
        }
    return found


def attend(
    bed: Bed,
    setting: Setting,
    blocks: list[Change | None],
    gate: Path,
    jobs: list[subprocess.Popen[bytes]],
) -> None:
    """Waits until all processes have ended; before each block, configures the bed for it."""
    deadline = time.monotonic() + TIMEOUT_S
    block = 0
    while any(job.poll() is None for job in jobs):
        if time.monotonic() > deadline:
            raise JobError(f"{setting.name} took more than {TIMEOUT_S} s")
        if any(job.returncode for job in jobs):
            return  # the others would wait for it
        if block < len(blocks) and (gate / f"ready-{block}").exists():
            bed_as_recorded(bed, setting)
            change = blocks[block]
            if change is not None:
                bed_changed(bed, setting, change)
            (gate / f"go-{block}").touch()
            block += 1
        time.sleep(0.02)


def end(job: subprocess.Popen[bytes]) -> None:
    if job.poll() is None:
        os.killpg(job.pid, signal.SIGKILL)
        job.wait()


def gather(bed: Bed, target: Path, *, told: bool = True) -> None:
    """Copies the run from the first host, where Augury gathers it; files left on other hosts are
    fetched and reported."""
    target.mkdir()
    for host in bed.hosts:
        for path in sorted((host.seen_from_outside / "run").glob("[!.]*")):
            if path.is_file() and not (target / path.name).exists():
                shutil.copyfile(path, target / path.name)
                if told and host is not bed.hosts[0] and path.name.startswith("rank-"):
                    print(f"  not gathered by augury: {path.name}", file=sys.stderr)
