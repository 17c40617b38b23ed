"""Recorded PyTorch jobs: replays and predicted changes, each next to its measurement."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from augury.ingest.clocks.rank_clocks import Source
from benchmarks.validate.checks import Check, clocks, cost_inside, recording_changes_nothing
from benchmarks.validate.gates import Gates
from benchmarks.validate.measured import slowing
from benchmarks.validate.progress import Progress
from benchmarks.validate.rows import Row
from benchmarks.validate.settings import SETTINGS, Change, Setting
from benchmarks.validate.suite import (
    Suite,
    is_recorded,
    is_wanted,
    predicted_change,
    recorded,
    replayed,
)
from benchmarks.validate.watch_cost import cost_of_watch

NAME = "torch"
SKEWED = ("last-1gbit", "transformer-200mbit")
LED_BACK_NS: dict[Source, int] = {"handshake": 50_000, "collectives": 300_000}
RERUN = "transformer-1gbit"


def rows(settings: list[Setting], folder: Path, only: str | None) -> Iterator[Row]:
    for setting in recorded(settings, folder):
        if is_wanted(setting.name, only):
            yield replayed(NAME, setting, folder)
        for change in setting.changes:
            if is_wanted(f"{setting.name}/{change.name}", only):
                yield predicted_change(
                    NAME, setting, change, folder, words_of(setting, change, folder)
                )


def checks(rows: list[Row], only: str | None, progress: Progress) -> Iterator[Check]:
    folder = progress.folder
    if only is None:
        yield from cost_inside(rows, NAME)
    for setting in SETTINGS:
        if setting.name in SKEWED and is_recorded(setting, folder):
            yield from clocks(
                setting, folder, NAME, LED_BACK_NS, lambda case: is_wanted(case, only)
            )
    if is_wanted("recording", only):
        yield from progress.checks("recording", lambda: _recording(folder))
    if is_wanted("watch", only):
        yield from progress.checks("watch", lambda: _watch(folder))


def _recording(folder: Path) -> Iterator[Check]:
    print(f"{RERUN} with and without recording", file=sys.stderr, flush=True)
    yield from recording_changes_nothing(_rerun(), folder)


def _watch(folder: Path) -> Iterator[Check]:
    print(f"{RERUN} with and without --watch", file=sys.stderr, flush=True)
    yield from cost_of_watch(_rerun(), folder / "watch")


def _rerun() -> Setting:
    (setting,) = (setting for setting in SETTINGS if setting.name == RERUN)
    return setting


def words_of(setting: Setting, change: Change, folder: Path) -> list[str]:
    """Returns the options of ``whatif``. A quota slows a host by another factor than its nominal
    one, so the factor is measured."""
    words = list(change.whatif)
    if change.slow is not None:
        host, _ = change.slow
        words[-1] = f"{host}:{slowing(folder / setting.name, change.name, host):.3f}"
    return words


TORCH = Suite(
    name=NAME,
    settings=SETTINGS,
    rows=rows,
    checks=checks,
    gates=Gates(),
    quick=("transformer-1gbit*", "transformer-sharded"),
)
