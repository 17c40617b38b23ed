"""Records a program on the test bed, finds its plan, and runs the program again under that plan."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

from augury.core.plan.plan_file import load_plan
from benchmarks.validate.launched_job import run_launched
from benchmarks.validate.optimize_settings import PLANNED_STEPS, RECORDED_STEPS, PlanCase
from benchmarks.validate.predicted import ask

RUN, PLAN, PLANNED, OPTIMIZED = "run", "plan.json", "planned", "optimized.json"
BUDGET = "20s"
PAIRS = ("default", "planned", "planned", "default")
"""Order of the jobs without and with a plan where a trial cannot judge it: a machine that becomes
steadily slower or faster favours neither."""
PAIR_STEPS = 120


def measure(case: PlanCase, folder: Path) -> None:
    """Runs a case. Afterwards ``folder`` has the recorded ``run``, the answer of ``augury
    optimize``, the plan if there is one, and the runs of the jobs that followed it."""
    folder = folder.resolve()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    _run(case, folder, RUN, RECORDED_STEPS, "--calibrate")
    run, plan = folder / RUN, folder / PLAN
    options = ("--allow", case.allow, "--budget", BUDGET, "-o", str(plan))
    optimized = ask("optimize", run, *options)
    stock = ask("schedule", run, "--policy", "ddp")
    told = {
        "answer": optimized.answer,
        "trouble": optimized.trouble,
        "exposed_pct": exposed_pct(stock.answer or {}),
    }
    (folder / OPTIMIZED).write_text(json.dumps(told, indent=1))
    if plan.exists():
        if has_no_trial(plan):
            for number, kind in enumerate(PAIRS):
                under = () if kind == "default" else ("--plan", str(plan), "--no-trial")
                _run(case, folder, f"{kind}-{number}", PAIR_STEPS, *under)
        else:
            _run(case, folder, PLANNED, PLANNED_STEPS, "--plan", str(plan))
    (folder / "setting.json").write_text(json.dumps(asdict(case.setting), indent=1))


def exposed_pct(scheduled: dict[str, Any]) -> float | None:
    """Returns the share of a stock step in which compute waits for communication, from an answer
    of ``augury schedule``."""
    for one in scheduled.get("policies", []):
        if one["policy"] == "ddp":
            return float(100 * one["waiting_ns"] / one["step_ns"])
    return None


def has_no_trial(plan: Path) -> bool:
    """Whether the plan changes what a program sets up once: its loader cannot alternate between
    blocks of steps."""
    return load_plan(plan).loader is not None


def _run(case: PlanCase, folder: Path, name: str, num_steps: int, *options: str) -> None:
    run_launched(
        case.setting,
        folder,
        name,
        lambda host, address: case.command(host, address, num_steps),
        *options,
    )
