"""A suite and its common steps: choosing cases, recording jobs, comparing predictions with
measurements."""

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
    """Yields rows of the settings recorded in a folder; only the requested cases."""
    checks: Callable[[list[Row], str | None, Progress], Iterator[Check]]
    """Yields checks. Checks over several cases are skipped if only some cases are requested."""
    gates: Gates
    quick: tuple[str, ...]
    """Patterns of one case per capability, for ``QUICK=1``."""
    record: Callable[[Setting, Path], None] = record
    """Runs a setting's job and saves it in that folder."""
    predicts_in_job: bool = False
    """Whether predictions are made while the job waits, by the code that measures."""


def chosen(settings: tuple[Setting, ...], only: str | None) -> list[Setting]:
    """Returns the settings with any requested case, and those that measure a change for them."""
    asked_for = [
        setting for setting in settings if any(is_wanted(case, only) for case in _cases(setting))
    ]
    partners = {change.measured_by for setting in asked_for for change in setting.changes}
    return [setting for setting in settings if setting in asked_for or setting.name in partners]


def record_all(suite: Suite, settings: list[Setting], progress: Progress) -> list[str]:
    """Measures the cases that are not done at this revision. Returns the failures in words."""
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
            # The importer may have changed since: import again.
            (folder / setting.name / "run" / "run.json").unlink(missing_ok=True)
            yield setting


def is_recorded(setting: Setting, folder: Path) -> bool:
    return (folder / setting.name / "setting.json").exists()


def measured(setting: Setting, change: Change, folder: Path) -> tuple[Measured | None, Measured]:
    """Returns the measurements of the changed steps, and of the plain steps of the same job."""
    baseline = of_record(folder / setting.name / "run").plain
    if change.measured_by is None:
        return of_blocks(folder / setting.name)[change.name], baseline
    partner = folder / change.measured_by / "run"
    return (of_record(partner).plain if partner.exists() else None), baseline


def replayed(suite: str, setting: Setting, folder: Path, *words: str) -> Row:
    """Returns a replay row. ``words``: options of ``augury replay``."""
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


def predicted_change(
    suite: str,
    setting: Setting,
    change: Change,
    folder: Path,
    words: Sequence[str],
    *,
    kind: str = "whatif",
) -> Row:
    """Returns a row of a predicted change. ``words``: the change as options of
    ``augury whatif``."""
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
    """Whether a case is requested. ``only``: patterns, separated by commas."""
    return only is None or any(fnmatch(case, pattern) for pattern in only.split(","))


def _cases(setting: Setting) -> list[str]:
    return [setting.name, *(f"{setting.name}/{change.name}" for change in setting.changes)]
