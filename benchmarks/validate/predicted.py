"""Predictions for a saved run, made through the command line as a user does."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.validate.job import environment


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    step_ns: int | None = None
    interval_ns: tuple[int, int] | None = None
    unexplained_pct: float | None = None
    trouble: str | None = None
    answer: dict[str, Any] | None = None


def ask(verb: str, run: Path, *options: str) -> Predicted:
    command = [sys.executable, "-m", "augury", verb, str(run), *options, "--json"]
    said = subprocess.run(
        command, env=environment(None, 0), capture_output=True, text=True, timeout=300, check=False
    )
    try:
        answer = json.loads(said.stdout)
    except ValueError:
        return Predicted(trouble=(said.stderr or said.stdout).strip()[-300:] or "no answer")
    if said.returncode:
        error = answer.get("error", {})
        return Predicted(trouble=str(error.get("cause", said.returncode)), answer=answer)
    interval = answer.get("interval_ns")
    return Predicted(
        step_ns=answer.get("step_time_ns", answer.get("predicted_step_ns")),
        interval_ns=(interval[0], interval[1]) if interval else None,
        unexplained_pct=answer.get("unexplained_pct"),
        answer=answer,
    )
