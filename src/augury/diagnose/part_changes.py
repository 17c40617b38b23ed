"""Changes of the parts of a step between two runs, judged against noise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

import msgspec

from augury.core.measured_step import StepLevel, student
from augury.core.results.comparison import Comparison, PartChange
from augury.costs.prediction_interval import BETWEEN_RUNS, combine_errors
from augury.diagnose.run_parts import PartLevel, Parts, RunParts

CERTAIN_CHANGE = 0.03
"""Relative changes below this are never certain."""

MAX_CHANGES = 20
"""Most changes in one list."""


@dataclass(frozen=True, slots=True)
class LevelChange:
    """Change of a level: logarithm of the ratio, and half the width of its 90 % interval."""

    log_ratio: float
    reach: float

    @property
    def is_certain(self) -> bool:
        return abs(self.log_ratio) > max(CERTAIN_CHANGE, self.reach)


def level_change(was: StepLevel, now: StepLevel, *more_errors: float) -> LevelChange:
    """``more_errors`` are standard errors of the change besides those of the levels, as shares."""
    error, freedom = combine_errors(
        (was.error, was.freedom),
        (now.error, now.freedom),
        *((share, math.inf) for share in more_errors),
    )
    return LevelChange(math.log(now.value_ns / was.value_ns), student(freedom) * error)


def with_part_changes(found: Comparison, was: RunParts, now: RunParts) -> Comparison:
    """The comparison with its lists of changes by phase, kind, layer and operation."""
    timed, detailed = (
        (math.sqrt(2) * BETWEEN_RUNS, *delays)
        for delays in (
            (was.timed_delay, now.timed_delay),
            (was.detailed_delay, now.detailed_delay),
        )
    )
    return msgspec.structs.replace(
        found,
        phase_changes=part_changes(was.phases, now.phases, timed),
        kind_changes=part_changes(was.kinds, now.kinds, timed),
        layer_changes=part_changes(was.layers, now.layers, detailed),
        operation_changes=part_changes(was.operations, now.operations, detailed),
    )


def part_changes(before: Parts, after: Parts, errors: tuple[float, ...]) -> list[PartChange]:
    """Largest changes first. A part that is missing in one run has changed for certain if it is in
    every step of the other run. ``errors`` are those between the runs: their usual difference, and
    time without a core, which may fall into any part."""
    found = [
        _change(name, before.get(name), after.get(name), errors)
        for name in before.keys() | after.keys()
    ]
    return _largest(found) if before and after else []


def mean_changes(each: Sequence[list[PartChange]]) -> list[PartChange]:
    """Means over pairs of runs; a change is certain if it is so in every pair, and in the same
    direction. Parts that some pairs do not list are left out."""
    found = []
    for first in each[0]:
        same = [change for one in each for change in one if change.name == first.name]
        if len(same) == len(each):
            before_ns = fmean(change.before_ns for change in same)
            after_ns = fmean(change.after_ns for change in same)
            found.append(
                PartChange(
                    name=first.name,
                    before_ns=round(before_ns),
                    after_ns=round(after_ns),
                    change_pct=_change_pct(before_ns, after_ns),
                    noise_ns=round(fmean(change.noise_ns for change in same)),
                    is_certain=all(
                        change.is_certain and change.change_ns * first.change_ns > 0
                        for change in same
                    ),
                )
            )
    return _largest(found)


def _largest(changes: list[PartChange]) -> list[PartChange]:
    return sorted(changes, key=lambda one: (-abs(one.change_ns), one.name))[:MAX_CHANGES]


def _change(
    name: str, was: PartLevel | None, now: PartLevel | None, errors: tuple[float, ...]
) -> PartChange:
    before_ns, after_ns = (one.level.value_ns if one is not None else 0.0 for one in (was, now))
    noise_ns, is_certain = 0.0, all(one is None or one.is_in_every_step for one in (was, now))
    if was is not None and now is not None:
        change = level_change(was.level, now.level, *errors)
        noise_ns = max(before_ns, after_ns) * change.reach
        is_certain = is_certain and change.is_certain
    return PartChange(
        name=name,
        before_ns=round(before_ns),
        after_ns=round(after_ns),
        change_pct=_change_pct(before_ns, after_ns),
        noise_ns=round(noise_ns),
        is_certain=is_certain,
    )


def _change_pct(before_ns: float, after_ns: float) -> float | None:
    return round(100 * (after_ns / before_ns - 1), 4) if before_ns else None
