"""Rows of recorded programs: the step measured by the program's own clock, and the interval of
``augury replay``; and pairs of runs as ``augury diff`` judges them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from augury.core.measured_step import level
from augury.costs.prediction_interval import interval_ns
from augury.predict.opened_run import open_source
from augury.predict.prediction import representation_of
from augury.predict.replays import replay_graph
from benchmarks.validate.coverage_job import plain_steps
from benchmarks.validate.job import environment
from benchmarks.validate.predicted import ask
from benchmarks.validate.rows import Row

SUITE = "coverage"


def rows_of(case: str, kind: str, folder: Path) -> Iterator[Row]:
    """Yields the replay's interval from all steps, and the interval that the windows alone give for
    the other steps."""
    step, dur_ns = plain_steps(folder)
    found = level(step, dur_ns)
    measured_ns = round(float(np.median(dur_ns)))
    predicted = ask("replay", folder / "run")
    yield Row(
        suite=SUITE,
        case=case,
        kind=kind,
        measured_ns=measured_ns,
        predicted_ns=predicted.step_ns,
        interval_ns=predicted.interval_ns,
        noise_pct=100 * found.drift,
        num_steps=len(step),
        unexplained_pct=predicted.unexplained_pct,
        trouble=predicted.trouble,
    )
    replayed = replay_graph(open_source(folder / "run").graph)
    run = representation_of(replayed)
    if run is not None:
        yield Row(
            suite=SUITE,
            case=f"{case}/windows-only",
            kind=f"{kind}-windows-only",
            measured_ns=measured_ns,
            predicted_ns=replayed.step_ns,
            interval_ns=interval_ns(replayed.step_ns, msgspec.structs.replace(run, plain=None)),
            noise_pct=100 * found.drift,
            num_steps=run.recorded.num_steps,
        )


def diff(before: Path, after: Path) -> dict[str, Any]:
    """Returns the ``augury diff`` of two runs."""
    command = [sys.executable, "-m", "augury", "diff", str(before), str(after), "--json"]
    said = subprocess.run(
        command, env=environment(None, 0), capture_output=True, text=True, timeout=300, check=True
    )
    result: dict[str, Any] = json.loads(said.stdout)["result"]
    return result


def claims_gain(result: dict[str, Any]) -> bool:
    low, high = result["gain_interval_pct"]
    return bool(low > 0 or high < 0)
