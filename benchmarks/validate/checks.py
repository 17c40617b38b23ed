"""Checks other than step times: corrected clocks, recording overhead, an unchanged loss."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from augury.ingest.clocks.rank_clocks import Source, to_common
from augury.ingest.recorded import read_run
from benchmarks.testbed.skew import Skew, skew_run
from benchmarks.validate.job import JobError, record
from benchmarks.validate.measured import WARM_UP, alternating, of_halves
from benchmarks.validate.predicted import ask
from benchmarks.validate.rows import Row
from benchmarks.validate.schedule import Schedule
from benchmarks.validate.settings import Setting

SKEWS = ((50_000_000, 0.0), (-50_000_000, 0.0), (50_000_000, 100.0), (-50_000_000, -100.0))
REPEATS = 4
DETAIL = 4
"""Steps after the last window in which the recorder captures shapes and memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    suite: str
    case: str
    kind: str
    value: float | None
    unit: str
    at_most: float
    noise: float | None = None
    trouble: str | None = None
    commit: str | None = None
    """Commit of the code that was checked."""
    is_dirty: bool = False

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> Check:
        return cls(**{field.name: found[field.name] for field in fields(cls)})

    @property
    def holds(self) -> bool | None:
        """Whether the check passes; None if undecided because the noise exceeds the
        allowed value."""
        if self.value is None:
            return False
        # A negative cost or harm is a gain.
        value = self.value if self.kind in ("cost", "harm") else abs(self.value)
        noise = self.noise or 0.0
        if noise <= self.at_most:
            return value <= self.at_most
        if value > self.at_most + noise:
            return False
        return True if value + noise <= self.at_most else None

    def as_json(self) -> dict[str, object]:
        return asdict(self) | {"holds": self.holds}


def clocks(
    setting: Setting,
    folder: Path,
    suite: str,
    bounds_ns: Mapping[Source, int],
    wanted: Callable[[str], bool],
) -> Iterator[Check]:
    """Checks the estimated clock offsets. The hosts of a bed share one clock, so the injected skew
    is the whole true offset."""
    run = folder / setting.name / "run"
    before = ask("replay", run).step_ns
    for source, bound_ns in bounds_ns.items():
        for offset_ns, ppm in SKEWS:
            case = f"{setting.name}/skew{offset_ns / 1e6:+.0f}ms{ppm:+.0f}ppm-{source}"
            if not wanted(case):
                continue
            with tempfile.TemporaryDirectory() as scratch:
                skewed = Path(scratch) / "run"
                skew = skew_run(
                    run,
                    skewed,
                    rank=1,
                    offset_ns=offset_ns,
                    ppm=ppm,
                    handshake=source == "handshake",
                )
                off_ns = led_back_to(skewed, run, skew, source)
                after = ask("replay", skewed)
            yield Check(
                suite=suite,
                case=case,
                kind="clock",
                value=off_ns / 1000,
                unit="us",
                at_most=bound_ns / 1000,
            )
            moved = 100 * (after.step_ns / before - 1) if after.step_ns and before else None
            yield Check(
                suite=suite,
                case=f"{case}-prediction",
                kind="clock",
                value=None if moved is None else round(moved, 3),
                unit="%",
                at_most=0.5,
                trouble=after.trouble,
            )


def led_back_to(skewed: Path, run: Path, skew: Skew, source: Source) -> int:
    """Largest remaining error of rank 1's corrected clock within the recorded time."""
    found = {rank.rank: rank.clock for rank in read_run(skewed, clocks=source).ranks}
    rank = json.loads((run / "rank-00001.json").read_text())
    inside = [
        rank["step_end_ns"][step - 1]
        for window in rank["windows"]
        for step in (window["first"], window["last"])
        if step <= len(rank["step_end_ns"])
    ]
    own = np.array([skew.shift(ns) for ns in inside], dtype=np.int64)
    return int(np.abs(to_common(found[1], own) - np.array(inside, dtype=np.int64)).max())


def cost_inside(rows: Sequence[Row], suite: str) -> Iterator[Check]:
    timed = [row for row in rows if row.recording_cost_pct is not None]
    costs = [row.recording_cost_pct for row in timed if row.recording_cost_pct is not None]
    if costs:
        yield Check(
            suite=suite,
            case="recording/inside",
            kind="cost",
            value=round(median(costs), 2),
            unit="%",
            at_most=5.0,
            noise=round(median(row.noise_pct or 0.0 for row in timed), 2),
        )


def recording_changes_nothing(setting: Setting, folder: Path) -> Iterator[Check]:
    """Alternates the same job with and without Augury; compares steps outside of windows, and the
    loss."""
    steps: dict[bool, list[list[int]]] = {False: [], True: []}
    losses: set[str] = set()
    bare = replace(setting, changes=())
    outside = plain_steps(Schedule(bare))
    try:
        for repeat in range(REPEATS):
            for recorded in (False, True):
                place = folder / "recording" / f"{repeat}-{'with' if recorded else 'without'}"
                record(bare, place, recorded=recorded)
                times = json.loads((place / "times-00000.json").read_text())
                losses.add(times["loss"])
                durations = np.diff(times["blocks"][0]["stamps_ns"])
                steps[recorded].append(durations[outside].tolist())
    except JobError as error:
        yield Check(
            suite="torch",
            case="recording/outside",
            kind="cost",
            value=None,
            unit="%",
            at_most=1.0,
            trouble=str(error),
        )
        return
    without, within = (of_halves(alternating(steps[recorded])) for recorded in (False, True))
    yield Check(
        suite="torch",
        case="recording/outside",
        kind="cost",
        value=round(100 * (within.step_ns / without.step_ns - 1), 2),
        unit="%",
        at_most=1.0,
        noise=round(2 * max(within.noise_pct, without.noise_pct), 2),
    )
    yield Check(
        suite="torch",
        case="recording/losses-that-differ",
        kind="loss",
        value=len(losses) - 1,
        unit="",
        at_most=0,
    )


def plain_steps(schedule: Schedule) -> list[int]:
    """Indices of plain steps of the recorded job that no recording window delayed."""
    last = schedule.windows[-1][1]
    windows = [(0, WARM_UP), *schedule.windows, (last, last + DETAIL)]
    num_steps = schedule.first_steps
    return [
        step - 1
        for step in range(1, num_steps + 1)
        if not any(first < step <= last + 1 for first, last in windows)
    ]
