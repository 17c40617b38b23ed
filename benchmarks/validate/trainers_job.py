"""Runs a trainer's program on the test bed: recorded while the rate of the links alternates, then
under the plan that the recording gave."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.testbed.bed import Bed
from benchmarks.validate.launched_job import run_launched, said
from benchmarks.validate.predicted import ask
from benchmarks.validate.running_job import RunningJob
from benchmarks.validate.trainers_rates import Stretch, alternate
from benchmarks.validate.trainers_settings import TrainerCase
from benchmarks.validate.withhold import withhold_changes

STRETCHES = "stretches.json"
SCHEDULED = "schedule.json"
PLAN = "plan.json"
STOCK, PLANNED = "stock", "planned"
REFUSED_STEPS = 30
"""Steps of a job that is given a plan which it must refuse."""


def measure(case: TrainerCase, folder: Path) -> None:
    """Runs a case. Afterwards ``folder`` has the recorded ``run`` without the steps at half the
    rate, the ``raw`` run with them, the stretches, the answer of ``augury schedule`` and, if it
    gave a plan, the run ``planned``."""
    folder = folder.resolve()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    stretches = _run(case, folder, STOCK, alternates=True)
    (folder / STOCK).rename(folder / "raw")
    (folder / STRETCHES).write_text(json.dumps([asdict(one) for one in stretches], indent=1))
    ends_ns = json.loads((folder / "raw" / "rank-00000.json").read_text())["step_end_ns"]
    kept = [one.steps(ends_ns) for one in stretches if not one.is_halved]
    withhold_changes(folder / "raw", folder / "run", [(one[0], one[-1]) for one in kept if one])
    found = ask("schedule", folder / "run", "-o", str(folder / PLAN))
    told = found.answer or {}
    (folder / SCHEDULED).write_text(json.dumps(told | {"trouble": found.trouble}, indent=1))
    if (folder / PLAN).exists():
        num_steps = None if case.prevented_by is None else REFUSED_STEPS
        _run(case, folder, PLANNED, "--plan", str(folder / PLAN), num_steps=num_steps)
    (folder / "setting.json").write_text(json.dumps(asdict(case.setting), indent=1))


def _run(
    case: TrainerCase,
    folder: Path,
    name: str,
    *options: str,
    alternates: bool = False,
    num_steps: int | None = None,
) -> list[Stretch]:
    """Runs the program under ``augury run``, and gathers its run in a folder of that name."""
    stretches: list[Stretch] = []

    def during(bed: Bed, job: RunningJob) -> None:
        stretches.extend(alternate(bed, case.setting, job))

    run_launched(
        case.setting,
        folder,
        name,
        lambda host, address: case.command(host, address, num_steps),
        *("--calibrate", "--calibrate-seconds", "0"),
        *options,
        during=during if alternates else None,
    )
    return stretches


def printed_results(folder: Path, name: str) -> list[str]:
    """Returns the lines in which the ranks printed their loss and a digest of their parameters."""
    lines = said(folder, name).splitlines()
    return sorted(line for line in lines if line.startswith("rank ") and " parameters " in line)


def stretches_of(folder: Path) -> list[Stretch]:
    found: list[dict[str, Any]] = json.loads((folder / STRETCHES).read_text())
    return [Stretch(**one) for one in found]
