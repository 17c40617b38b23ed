"""Compares recorded runs by their folders: two runs, or the pairs of repeated ones."""

from __future__ import annotations

from pathlib import Path

import msgspec

from augury.core.enums import MemoryKind
from augury.core.errors import InputError
from augury.core.measured_step import counted_steps
from augury.core.plan.plan import Plan
from augury.core.results.comparison import Comparison, StepSeries
from augury.core.trace.trace import Trace
from augury.core.units import format_bytes, format_count
from augury.diagnose.repeated_runs import compare_repeats
from augury.predict.judge_plan import check_followed
from augury.predict.opened_run import OpenedRun, open_source


def compare_folders(
    before: OpenedRun, after: OpenedRun, plan: Plan | None = None
) -> tuple[Comparison, list[tuple[StepSeries, StepSeries]]]:
    """Compares two runs, or all pairs in two folders that ``augury run --repeat-baseline`` wrote;
    with a plan, also with its prediction. Returns the steps of each pair as well."""
    pairs = [(_read(first), _read(second)) for first, second in _pairs(before, after)]
    if plan is not None:
        for _, followed in pairs:
            check_followed(followed, plan)
    comparison = msgspec.structs.replace(
        compare_repeats(pairs, plan), differences=_differences(*pairs[0])
    )
    return comparison, [(_series(first), _series(second)) for first, second in pairs]


def _differences(before: Trace, after: Trace) -> list[str]:
    """Returns signs that the runs are of different jobs. Names of parameters do not count: they
    differ where modules are compiled."""
    if before.world_size != after.world_size:
        return [f"{format_count(before.world_size, 'rank')} before, {after.world_size:,} after"]
    first, second = _parameter_sizes(before), _parameter_sizes(after)
    if first and second and first != second:
        shown = [f"{len(own):,} of {format_bytes(sum(own))}" for own in (first, second)]
        return [f"the parameters of another model: {shown[0]} before, {shown[1]} after"]
    return []


def _parameter_sizes(trace: Trace) -> list[int]:
    """Sizes of the parameters of the first rank, in ascending order; empty if unknown."""
    memory = trace.memory
    rank = min((facts.rank for facts in trace.ranks), default=0)
    is_own = (memory.rank == rank) & (memory.kind == MemoryKind.PARAMETER)
    return sorted(memory.size_bytes[is_own].tolist())


def _pairs(before: OpenedRun, after: OpenedRun) -> list[tuple[OpenedRun, OpenedRun]]:
    first, second = _numbered(before.path), _numbered(after.path)
    if not first and not second:
        return [(before, after)]
    both = sorted(first.keys() & second.keys())
    if not both:
        raise InputError(
            f"{before.path} and {after.path} have no runs of the same number",
            remedy="give two runs, or the folders that `augury run --repeat-baseline` wrote",
        )
    return [
        (
            open_source(first[number], progress=before.progress),
            open_source(second[number], progress=after.progress),
        )
        for number in both
    ]


def _numbered(folder: Path) -> dict[int, Path]:
    """Numbered runs in the folder that have a rank record."""
    if not folder.is_dir():
        return {}
    return {
        int(path.name): path
        for path in folder.iterdir()
        if path.name.isascii() and path.name.isdecimal() and next(path.glob("r*.json"), None)
    }


def _series(trace: Trace) -> StepSeries:
    step, dur_ns = counted_steps(trace)
    return StepSeries(step=step.tolist(), dur_ns=[round(one) for one in dur_ns.tolist()])


def _read(run: OpenedRun) -> Trace:
    if not run.is_recorded:
        raise InputError(f"{run.path} is not a run's folder", remedy="give what `augury run` wrote")
    return run.trace
