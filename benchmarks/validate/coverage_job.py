"""Runs ordinary programs under ``augury run`` with its defaults, alone or next to other load."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from augury.core.columns import I4
from augury.core.measured_step import over_ranks
from benchmarks.validate.job import ROOT, JobError, end
from benchmarks.validate.settings import Setting

TIMEOUT_S = 240
WARM_UP = 5


def run_program(
    folder: Path,
    program: str,
    *,
    steps: int,
    work: int,
    num_ranks: int = 1,
    load: int | None = None,
) -> None:
    """Runs a program. Afterwards ``folder`` has ``run`` and the program's own times. ``load`` is
    the seed of the other load."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    script = ["-m", "benchmarks.testbed.programs", program, "--steps", str(steps)]
    script += ["--work", str(work), "--out", str(folder.resolve() / "times.json")]
    job = [sys.executable, *script]
    if num_ranks > 1:
        job = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        job += [f"--nproc-per-node={num_ranks}", "--local-addr=127.0.0.1", *script]
    command = [sys.executable, "-m", "augury", "run", "--out", str(folder / "run"), "--", *job]
    with _beside(load), (folder / "log.txt").open("w") as log:
        running = subprocess.Popen(
            command,
            cwd=ROOT,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            code = running.wait(TIMEOUT_S)
        except subprocess.TimeoutExpired as error:
            raise JobError(f"{program} took longer than {TIMEOUT_S} s") from error
        finally:
            end(running)
    if code:
        raise JobError(f"{program} ended with {code}: {(folder / 'log.txt').read_text()[-800:]}")


def record_setting(setting: Setting, folder: Path) -> None:
    """Records a setting. The program is the setting's model; its options are ``steps``, ``work``
    and the seed of the other load, empty for none."""
    steps, work, load = setting.options
    run_program(
        folder,
        setting.model,
        steps=int(steps),
        work=int(work),
        num_ranks=setting.num_ranks,
        load=int(load) if load else None,
    )
    (folder / "setting.json").write_text(json.dumps({"name": setting.name}))


def plain_steps(folder: Path) -> tuple[I4, NDArray[np.float64]]:
    """Returns numbers and durations of the steps outside of windows, by the program's own clock:
    the steps that a user who knows the recording windows would measure."""
    record = json.loads((folder / "run" / "rank-00000.json").read_text())
    paths = sorted(folder.glob("times.*.json"))
    ends = [np.array(json.loads(path.read_text()), dtype=np.int64) for path in paths]
    number = min(len(one) for one in ends)
    is_plain = np.ones(number + 1, dtype=bool)
    is_plain[: WARM_UP + 1] = False
    for window in record["windows"]:
        is_plain[window["first"] + 1 : window["last"] + 2] = False
    step = np.flatnonzero(is_plain).astype(np.int32)
    return over_ranks(
        np.repeat(np.arange(len(ends), dtype=np.int32), len(step)),
        np.tile(step, len(ends)),
        np.concatenate([one[step - 1] - one[step - 2] for one in ends]),
    )


@contextmanager
def _beside(seed: int | None) -> Iterator[None]:
    if seed is None:
        yield
        return
    command = [sys.executable, "-m", "benchmarks.testbed.load", str(seed)]
    load = subprocess.Popen(command, cwd=ROOT, start_new_session=True)
    try:
        yield
    finally:
        end(load)
