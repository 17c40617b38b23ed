"""Recorded PyTorch jobs: replayed, and changes foretold, each beside what was measured."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

from benchmarks.testbed.network import can_make_networks
from benchmarks.validate.checks import Check, clocks, cost_inside, recording_changes_nothing
from benchmarks.validate.job import JobError, record
from benchmarks.validate.measured import Measured, of_blocks, of_record, slowing
from benchmarks.validate.predicted import ask
from benchmarks.validate.rows import Row
from benchmarks.validate.settings import SETTINGS, Change, Setting

SUITE = "torch"
SKEWED = ("last-1gbit", "transformer-200mbit")
RERUN = "transformer-1gbit"


def chosen(only: str | None) -> list[Setting]:
    """Settings of which any case is asked for, and those which measure a change for them."""
    wanted = [
        setting for setting in SETTINGS if any(_wanted(case, only) for case in _cases(setting))
    ]
    partners = {change.measured_by for setting in wanted for change in setting.changes}
    return [setting for setting in SETTINGS if setting in wanted or setting.name in partners]


def record_all(settings: list[Setting], folder: Path) -> list[str]:
    """What could not be done, in words."""
    troubles: list[str] = []
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
            record(setting, folder / setting.name)
        except JobError as error:
            troubles.append(f"{setting.name}: {error}")
    return troubles


def rows(settings: list[Setting], folder: Path, only: str | None) -> Iterator[Row]:
    for setting in settings:
        if not (folder / setting.name / "setting.json").exists():
            continue
        # What reads runs may have changed since: it is to read again.
        (folder / setting.name / "run" / "run.json").unlink(missing_ok=True)
        if _wanted(setting.name, only):
            yield replayed(setting, folder)
        for change in setting.changes:
            if _wanted(f"{setting.name}/{change.name}", only):
                yield foretold(setting, change, folder)


def checks(rows: list[Row], folder: Path, only: str | None, *, again: bool) -> Iterator[Check]:
    """``again`` also runs the jobs that only checks need."""
    yield from cost_inside(rows)
    for setting in SETTINGS:
        if setting.name in SKEWED and (folder / setting.name / "setting.json").exists():
            yield from clocks(setting, folder, lambda case: _wanted(case, only))
    if again and _wanted("recording", only):
        (setting,) = (setting for setting in SETTINGS if setting.name == RERUN)
        print(f"{RERUN} with and without recording", file=sys.stderr, flush=True)
        yield from recording_changes_nothing(setting, folder)


def replayed(setting: Setting, folder: Path) -> Row:
    run = folder / setting.name / "run"
    measured = of_record(run)
    predicted = ask("replay", run)
    return Row(
        suite=SUITE,
        case=setting.name,
        kind="replay",
        measured_ns=measured.plain.step_ns,
        predicted_ns=predicted.step_ns,
        interval_ns=predicted.interval_ns,
        noise_pct=measured.plain.noise_pct,
        num_steps=measured.plain.num_steps,
        unexplained_pct=predicted.unexplained_pct,
        recording_cost_pct=measured.cost_pct,
        trouble=predicted.trouble,
    )


def foretold(setting: Setting, change: Change, folder: Path) -> Row:
    measured, baseline = _measured(setting, change, folder)
    words = list(change.whatif)
    if change.slow is not None:
        host, _ = change.slow
        words[-1] = f"{host}:{slowing(folder / setting.name, change.name, host):.3f}"
    predicted = ask("whatif", folder / setting.name / "run", *words)
    return Row(
        suite=SUITE,
        case=f"{setting.name}/{change.name}",
        kind="whatif",
        measured_ns=measured.step_ns if measured else None,
        predicted_ns=predicted.step_ns,
        interval_ns=predicted.interval_ns,
        noise_pct=measured.noise_pct if measured else None,
        num_steps=measured.num_steps if measured else None,
        baseline_ns=baseline.step_ns,
        trouble=predicted.trouble,
    )


def _measured(setting: Setting, change: Change, folder: Path) -> tuple[Measured | None, Measured]:
    baseline = of_record(folder / setting.name / "run").plain
    if change.measured_by is None:
        return of_blocks(folder / setting.name)[change.name], baseline
    partner = folder / change.measured_by / "run"
    return (of_record(partner).plain if partner.exists() else None), baseline


def _cases(setting: Setting) -> list[str]:
    return [setting.name, *(f"{setting.name}/{change.name}" for change in setting.changes)]


def _wanted(case: str, only: str | None) -> bool:
    return only is None or fnmatch(case, only)
