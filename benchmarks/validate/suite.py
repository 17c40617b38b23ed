"""What a suite is, and what all of them do alike: choosing cases, recording
their jobs, and holding predictions against what was measured."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import partial
from pathlib import Path

from benchmarks.testbed.network import can_make_networks
from benchmarks.validate.checks import Check
from benchmarks.validate.gates import Gates
from benchmarks.validate.job import JobError, record
from benchmarks.validate.measured import Measured, of_blocks, of_record
from benchmarks.validate.predicted import ask
from benchmarks.validate.progress import Progress
from benchmarks.validate.rows import Row
from benchmarks.validate.settings import Change, Setting


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    name: str
    settings: tuple[Setting, ...]
    rows: Callable[[list[Setting], Path, str | None], Iterator[Row]]
    """Of settings recorded in a folder; only the cases that are asked for."""
    checks: Callable[[list[Row], str | None, Progress], Iterator[Check]]
    """Checks over several cases are left out where only some cases are asked for."""
    gates: Gates
    quick: tuple[str, ...]
    """Patterns of one case per capability, for ``QUICK=1``."""
    record: Callable[[Setting, Path], None] = record
    """Runs a setting's job, into that folder."""
    predicts_in_job: bool = False
    """Predictions are made while the job waits, by the code that measures."""


def chosen(settings: tuple[Setting, ...], only: str | None) -> list[Setting]:
    """Settings of which any case is asked for, and those which measure a change for them."""
    asked_for = [
        setting for setting in settings if any(is_wanted(case, only) for case in _cases(setting))
    ]
    partners = {change.measured_by for setting in asked_for for change in setting.changes}
    return [setting for setting in settings if setting in asked_for or setting.name in partners]


def record_all(suite: Suite, settings: list[Setting], progress: Progress) -> list[str]:
    """Measures what is not done at this revision. Returns what failed, in words."""
    troubles: list[str] = []
    num_all = len(settings)
    settings = [setting for setting in settings if not progress.is_done(setting.name)]
    if len(settings) < num_all:
        done = num_all - len(settings)
        print(f"{suite.name}: {done} of {num_all} cases are done at this commit", file=sys.stderr)
    if any(setting.mbit is not None for setting in settings) and not can_make_networks():
        left_out = [setting.name for setting in settings if setting.mbit is not None]
        settings = [setting for setting in settings if setting.mbit is None]
        troubles.append(
            "no rights to make networks (root and control groups are needed):"
            f" only loopback is measured, without {', '.join(left_out)}"
        )
    begin = time.monotonic()
    for index, setting in enumerate(settings):
        left = ""
        if index:
            each_s = (time.monotonic() - begin) / index
            left = f", about {each_s * (len(settings) - index) / 60:.0f} min left"
        print(f"[{index + 1}/{len(settings)}] {setting.name}{left}", file=sys.stderr, flush=True)
        try:
            progress.measure(
                setting.name, partial(suite.record, setting, progress.folder / setting.name)
            )
        except JobError as error:
            troubles.append(f"{setting.name}: {error}")
    return troubles


def recorded(settings: list[Setting], folder: Path) -> Iterator[Setting]:
    for setting in settings:
        if is_recorded(setting, folder):
            # What reads runs may have changed since: it is to read again.
            (folder / setting.name / "run" / "run.json").unlink(missing_ok=True)
            yield setting


def is_recorded(setting: Setting, folder: Path) -> bool:
    return (folder / setting.name / "setting.json").exists()


def measured(setting: Setting, change: Change, folder: Path) -> tuple[Measured | None, Measured]:
    """Of the changed steps, and of the plain ones of the same job."""
    baseline = of_record(folder / setting.name / "run").plain
    if change.measured_by is None:
        return of_blocks(folder / setting.name)[change.name], baseline
    partner = folder / change.measured_by / "run"
    return (of_record(partner).plain if partner.exists() else None), baseline


def replayed(suite: str, setting: Setting, folder: Path, *words: str) -> Row:
    """``words``: options of ``augury replay``."""
    run = folder / setting.name / "run"
    times = of_record(run)
    predicted = ask("replay", run, *words)
    return Row(
        suite=suite,
        case=setting.name,
        kind="replay",
        measured_ns=times.plain.step_ns,
        predicted_ns=predicted.step_ns,
        interval_ns=predicted.interval_ns,
        noise_pct=times.plain.noise_pct,
        num_steps=times.plain.num_steps,
        unexplained_pct=predicted.unexplained_pct,
        recording_cost_pct=times.cost_pct,
        trouble=predicted.trouble,
    )


def foretold(
    suite: str,
    setting: Setting,
    change: Change,
    folder: Path,
    words: Sequence[str],
    *,
    kind: str = "whatif",
) -> Row:
    """``words``: the change as ``augury whatif`` takes it."""
    changed, baseline = measured(setting, change, folder)
    predicted = ask("whatif", folder / setting.name / "run", *words)
    return Row(
        suite=suite,
        case=f"{setting.name}/{change.name}",
        kind=kind,
        measured_ns=changed.step_ns if changed else None,
        predicted_ns=predicted.step_ns,
        interval_ns=predicted.interval_ns,
        noise_pct=changed.noise_pct if changed else None,
        num_steps=changed.num_steps if changed else None,
        baseline_ns=baseline.step_ns,
        trouble=predicted.trouble,
    )


def is_wanted(case: str, only: str | None) -> bool:
    """``only``: patterns, separated by commas."""
    return only is None or any(fnmatch(case, pattern) for pattern in only.split(","))


def _cases(setting: Setting) -> list[str]:
    return [setting.name, *(f"{setting.name}/{change.name}" for change in setting.changes)]
