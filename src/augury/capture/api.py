"""The function ``augury.record``, with which a training script records itself."""

from __future__ import annotations

import atexit
import multiprocessing
import os
import shlex
import sys
from dataclasses import replace
from pathlib import Path

from augury.capture.bootstrap import has_trained
from augury.capture.launcher.in_process import arrange_here, is_rank
from augury.capture.launcher.run_folder import prepare_folder
from augury.capture.launcher.time_modules import time_modules
from augury.capture.process_identity import own_rank
from augury.capture.settings import (
    DEFAULT_CALIBRATE_SECONDS,
    Settings,
    checked_distance,
    parse_windows,
)
from augury.core.errors import UsageError
from augury.core.units import parse_ranks

_is_arranged = False


def record(
    out: str | os.PathLike[str] = "augury-run",
    *,
    steps: str = "auto",
    ranks: str | None = None,
    calibrate: bool = False,
    calibrate_seconds: float = DEFAULT_CALIBRATE_SECONDS,
    watch: int | None = None,
    force: bool = False,
) -> None:
    """Records this process as ``augury run`` does. Every rank calls it at the start of its script.

    It does nothing in a job that ``augury run`` already records.
    """
    global _is_arranged  # noqa: PLW0603
    if Settings.VARIABLE in os.environ:
        return
    windows, chosen = parse_windows(steps), parse_ranks(ranks)
    distance = checked_distance(watch)
    if _is_arranged:
        raise UsageError("augury.record was called twice", remedy="call it once")
    if has_trained():
        raise UsageError(
            "augury.record was called after training began",
            remedy="call it in the first lines of the script",
        )
    settings = Settings(
        out=str(Path(out).resolve()),
        windows=windows,
        calibrate=calibrate,
        calibrate_seconds=calibrate_seconds,
        ranks=chosen,
        watch=distance,
    )
    # A child process imports the script again: its parent has checked the folder.
    if multiprocessing.parent_process() is None:
        rank, _ = own_rank()
        folder = prepare_folder(Path(out), force=force, rank=rank if is_rank() else None)
        settings = replace(settings, out=str(folder))
        if rank == 0:
            # Registered before the recorder's own exit handler, and so called after it.
            atexit.register(_end_recording, os.getpid(), settings, os.fspath(out))
    arrange_here(settings)
    _is_arranged = True


def _end_recording(pid: int, settings: Settings, out: str) -> None:
    if os.getpid() != pid:
        return
    # Python notes an uncaught exception here before it exits.
    has_succeeded = getattr(sys, "last_value", None) is None
    time_modules(settings, os.environ, has_succeeded=has_succeeded)
    _print_summary(Path(settings.out), out)


def _print_summary(folder: Path, out: str) -> None:
    """Prints to stderr, because stdout belongs to the script. Examples of warnings are left out:
    they come from files and may contain anything."""
    from augury.capture.launcher.run_summary import summarize_run
    from augury.core.units import format_count

    try:
        summary = summarize_run(folder)
        lines = [f"augury: {format_count(len(summary.ranks), 'rank')} recorded in {out}"]
        lines += [f"  {anomaly.severity}: {anomaly.meaning}" for anomaly in summary.ledger]
        lines.append(f"next: augury diagnose {shlex.quote(out)}")
        print(*lines, sep="\n", file=sys.stderr)
    except Exception as error:
        print(f"augury: cannot summarize the recording: {error}", file=sys.stderr)
