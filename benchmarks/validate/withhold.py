"""Removes the changed steps from a run, so that predictions cannot see them."""

from __future__ import annotations

import json
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any


def withhold_changes(raw: Path, target: Path, kept: list[tuple[int, int]]) -> None:
    """Copies a recorded run as if its job had only run the steps ``kept``, with pauses in place of
    the others. Windows lie within them."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(raw, target)
    for path in target.glob("rank-?????.json"):
        path.write_text(json.dumps(without_others(json.loads(path.read_text()), kept)))


def without_others(record: dict[str, Any], kept: list[tuple[int, int]]) -> dict[str, Any]:
    ends = record["step_end_ns"]
    steps = [step for first, last in kept for step in range(first, min(last, len(ends)) + 1)]
    new_number = {step: number for number, step in enumerate(steps, start=1)}
    # A step after withheld ones begins when the last of those ended.
    resumed = {
        new_number[before]: ends[step - 2] for before, step in pairwise(steps) if step != before + 1
    }
    resumed |= {new_number[step]: ns for step, ns in record["resumed"] if step in new_number}
    return record | {
        "step_end_ns": [ends[step - 1] for step in steps],
        "resumed": [[step, ns] for step, ns in sorted(resumed.items())],
        "step_cpu": [
            [new_number[step], *rest] for step, *rest in record["step_cpu"] if step in new_number
        ],
        "step_delay_ns": [],
        "windows": [
            window | {"first": new_number[window["first"]], "last": new_number[window["last"]]}
            for window in record["windows"]
            if window["first"] in new_number and window["last"] in new_number
        ],
    }
