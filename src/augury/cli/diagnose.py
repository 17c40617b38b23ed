"""``augury diagnose`` says what makes a run slow, and what to do about it."""

from __future__ import annotations

import sys

from augury.cli.numpy_threads import import_numpy
from augury.cli.options import GraphPath, Json, MaxBytes
from augury.cli.progress import working
from augury.cli.say import next_command


def diagnose(run: GraphPath, *, max_bytes: MaxBytes = None, json: Json = False) -> None:
    """Say what makes a run slow, and what to do about it."""
    import_numpy()
    from augury import api

    answer = api.open(run, max_bytes=max_bytes, progress=working).diagnose()
    if json:
        print(answer.to_json())
        return
    answer.render(sys.stdout)
    is_planned = any(finding.applied_by == "schedule" for finding in answer.result.findings)
    if is_planned:
        next_command("schedule", run, "-o", "plan.json")
    else:
        next_command("report", run, "-o", "report.html")
