"""Jobs with injected faults: whether ``augury diagnose`` names the fault first, and predicts the
step without it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.validate.checks import Check
from benchmarks.validate.fault_settings import FAULT_SETTINGS, FAULTS, PAUSE, fault_of
from benchmarks.validate.gates import Gates
from benchmarks.validate.predicted import ask
from benchmarks.validate.progress import Progress
from benchmarks.validate.rows import Row
from benchmarks.validate.schedule import BEFORE, WINDOW
from benchmarks.validate.settings import Setting
from benchmarks.validate.suite import Suite, is_wanted, recorded

NAME = "diagnose"
LEAST_GAIN_PCT = 10.0
"""A case whose fault costs less than this in the real run does not count."""
GAIN_POINTS = 5.0
FALSE_KINDS = frozenset(kind for fault in FAULTS for kind in fault.finding)
"""Kinds that a healthy run must not show: its only true finding is exposed communication, and the
choice of bucket sizes that follows from it."""
ALLOWED_IN_HEALTHY = frozenset({"buckets-too-small", "bucket-too-large"})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Steps:
    """Steps with and without the fault, in alternating blocks of one job."""

    faulty_ns: float
    fixed_ns: float
    noise_pct: float

    @property
    def gain_pct(self) -> float:
        return 100 * (1 - self.fixed_ns / self.faulty_ns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the diagnosis of a case says, and what was measured."""

    case: str
    expected: tuple[str, ...]
    first: str
    found: tuple[str, ...]
    measured_gain_pct: float | None
    predicted_gain_pct: float | None
    row: Row | None

    @property
    def is_strong(self) -> bool:
        return self.measured_gain_pct is not None and self.measured_gain_pct >= LEAST_GAIN_PCT

    @property
    def is_named(self) -> bool:
        return self.first in self.expected

    @property
    def is_close(self) -> bool:
        if self.measured_gain_pct is None or self.predicted_gain_pct is None:
            return False
        return abs(self.measured_gain_pct - self.predicted_gain_pct) <= GAIN_POINTS


def rows(settings: list[Setting], folder: Path, only: str | None) -> Iterator[Row]:
    for setting in recorded(settings, folder):
        if is_wanted(setting.name, only) or is_wanted(f"{setting.name}/fixed", only):
            verdict = _verdict(setting, folder)
            path = folder / setting.name / "verdict.json"
            path.write_text(json.dumps({"first": verdict.first, "found": verdict.found}))
            if verdict.row is not None:
                yield verdict.row


def checks(_rows: list[Row], only: str | None, progress: Progress) -> Iterator[Check]:
    if only is not None:
        return
    verdicts = [
        _verdict(setting, progress.folder)
        for setting in recorded(list(FAULT_SETTINGS), progress.folder)
    ]
    faulty = [one for one in verdicts if one.expected and one.is_strong]
    healthy = [one for one in verdicts if not one.expected]
    weak = [one for one in verdicts if one.expected and not one.is_strong]
    if faulty:
        yield _check("faults/not-named-first", [not one.is_named for one in faulty], 10.0)
        yield _check("faults/gain-off-by-5-points", [not one.is_close for one in faulty], 15.0)
        yield _check("faults/too-weak", [True] * len(weak) + [False] * len(faulty), 20.0)
    if healthy:
        false = [bool({*one.found} & (FALSE_KINDS - ALLOWED_IN_HEALTHY)) for one in healthy]
        yield _check("healthy/false-findings", false, 10.0)


def _check(case: str, missed: list[bool], at_most: float) -> Check:
    share = 100 * sum(missed) / len(missed)
    return Check(
        suite=NAME, case=case, kind="finding", value=round(share, 1), unit="%", at_most=at_most
    )


def _verdict(setting: Setting, folder: Path) -> Verdict:
    own = folder / setting.name
    asked = ask("diagnose", own / "run")
    answer = asked.answer or {}
    findings: list[dict[str, Any]] = answer.get("findings", [])
    kinds = tuple(str(one["kind"]) for one in findings)
    fault = fault_of(setting)
    if fault is None:
        return Verdict(
            case=setting.name,
            expected=(),
            first=kinds[0] if kinds else "",
            found=kinds,
            measured_gain_pct=None,
            predicted_gain_pct=None,
            row=None,
        )
    steps = _steps_of(own, has_pauses=PAUSE in fault.finding)
    named = next((one for one in findings if one["kind"] in fault.finding), None)
    gain_pct = None if named is None else named["gain_pct"]
    return Verdict(
        case=setting.name,
        expected=fault.finding,
        first=kinds[0] if kinds else "",
        found=kinds,
        measured_gain_pct=steps.gain_pct,
        predicted_gain_pct=gain_pct,
        row=_row(setting, steps, named, asked.trouble),
    )


def _row(setting: Setting, steps: _Steps, named: dict[str, Any] | None, trouble: str | None) -> Row:
    predicted_ns, interval = None, None
    if named is not None:
        predicted_ns, interval = named["predicted_step_ns"], named["interval_ns"]
        if predicted_ns is None and named["gain_pct"] is not None:
            predicted_ns = round(steps.faulty_ns * (1 - named["gain_pct"] / 100))
    return Row(
        suite=NAME,
        case=setting.name,
        kind="finding",
        measured_ns=round(steps.fixed_ns),
        predicted_ns=predicted_ns,
        interval_ns=(interval[0], interval[1]) if interval else None,
        noise_pct=steps.noise_pct,
        baseline_ns=round(steps.faulty_ns),
        trouble=trouble or (None if named else "the fault is not among the findings"),
    )


def _steps_of(folder: Path, *, has_pauses: bool) -> _Steps:
    """Medians over rounds of the steps outside of windows. A pause in one of four steps does not
    move a median: where there are pauses, a round counts with its mean."""
    ranks = [json.loads(path.read_text())["blocks"] for path in sorted(folder.glob("times-*.json"))]
    of_round = np.mean if has_pauses else np.median
    found: dict[bool, list[float]] = {False: [], True: []}
    for same in list(zip(*ranks, strict=True))[1:]:
        own = [np.diff(block["stamps_ns"][block["warm_up"] :]) for block in same]
        durations = np.mean(own, axis=0)
        is_fixed = "@" in same[0]["block"]
        if not is_fixed:  # the recorder delays the first step after a window
            durations = np.delete(durations, np.arange(BEFORE, BEFORE + WINDOW + 1))
        found[is_fixed].append(float(of_round(durations)))
    fixed = found[True]
    middle = float(np.mean(fixed) if has_pauses else np.median(fixed))
    halves = np.median(fixed[::2]), np.median(fixed[1::2])
    return _Steps(
        faulty_ns=float(np.mean(found[False]) if has_pauses else np.median(found[False])),
        fixed_ns=middle,
        noise_pct=float(100 * abs(halves[0] - halves[1]) / middle),
    )


DIAGNOSE = Suite(
    name=NAME,
    settings=FAULT_SETTINGS,
    rows=rows,
    checks=checks,
    gates=Gates(),
    quick=("conv-slow-host*", "conv-healthy-1*"),
)
