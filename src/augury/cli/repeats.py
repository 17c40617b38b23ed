"""``augury run --repeat-baseline``: the same job without a plan and with it, in turns."""

from __future__ import annotations

import os
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from augury.cli.ending import Ending

if TYPE_CHECKING:
    from collections.abc import Sequence

    from augury.capture.settings import Settings

BASELINE, PLANNED = "baseline", "planned"


def turns(number: int) -> list[tuple[str, str]]:
    """Folders of the runs, in their order: back and forth, so that a machine which gets slower or
    faster does so for both."""
    pairs = [(BASELINE, PLANNED) if i % 2 else (PLANNED, BASELINE) for i in range(1, number + 1)]
    return [(name, str(i)) for i, pair in enumerate(pairs, start=1) for name in pair]


def run_in_turns(
    command: Sequence[str],
    settings: Settings,
    *,
    out: Path,
    plan: Path,
    number: int,
    force: bool,
    as_json: bool,
) -> int:
    """The exit code of the first run that failed, or of which nothing was recorded; else 0."""
    from augury.capture.launcher.launch import launch
    from augury.capture.launcher.run_folder import prepare_folder
    from augury.report.safe_text import safe
    from augury.runtime.torch.injection import VARIABLE

    places = [(name, out / name / place) for name, place in turns(number)]
    folders = [prepare_folder(place, force=force) for _, place in places]
    for (name, place), folder in zip(places, folders, strict=True):
        os.environ.pop(VARIABLE, None)
        if name == PLANNED:
            os.environ[VARIABLE] = os.path.realpath(plan)
        ending = Ending(out=place, folder=folder, rank=None, as_json=as_json, wire=settings.wire)
        ending.exit_code = launch(command, replace(settings, out=str(folder)))
        code = ending.exit_code or int(ending.tell().is_empty)
        if code:
            return code
    if not as_json:
        words = ("diff", out / BASELINE, out / PLANNED, "--plan", plan)
        said = " ".join(shlex.quote(os.fspath(word)) for word in words)
        print(safe(f"next: augury {said}", max_chars=2000), file=sys.stderr)
    return 0
