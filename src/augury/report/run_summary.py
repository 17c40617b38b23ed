"""Lines that ``augury run`` prints at the end of a job: recorded ranks, warnings, next command."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TextIO

from augury.core.results.recorded_run import (
    ModuleTimesSummary,
    RankSummary,
    RunSummary,
    WatchSummary,
    WireSummary,
)
from augury.core.units import format_count, format_ns
from augury.report.safe_text import safe

MAX_LISTED_TRACES = 3
"""If a rank has more traces, only their number and the first one are printed."""


def write_run_summary(
    summary: RunSummary, file: TextIO, *, out: Path, exit_code: int, is_part: bool = False
) -> None:
    for line in run_summary_lines(summary, out=out, exit_code=exit_code, is_part=is_part):
        print(safe(line, max_chars=2000), file=file)


def run_summary_lines(
    summary: RunSummary, *, out: Path, exit_code: int, is_part: bool = False
) -> list[str]:
    """Returns the lines of a summary. ``out`` is the folder as the user wrote it. ``is_part`` says
    that the summary covers one rank and does not represent the whole job; then no next command is
    printed."""
    lines = [f"augury: {format_count(len(summary.ranks), 'rank')} recorded in {out}"]
    if summary.is_empty and exit_code == 0:
        lines = [f"augury: nothing was recorded in {out}, although the job succeeded"]
    lines += [f"  {_rank_line(rank)}" for rank in summary.ranks]
    if summary.wire is not None:
        lines.append(f"  {_wire_line(summary.wire)}")
    if summary.watch is not None:
        lines.append(f"  {_watch_line(summary.watch, out)}")
    if summary.module_times is not None:
        lines.append(f"  {_module_times_line(summary.module_times)}")
    for anomaly in summary.ledger:
        example = anomaly.example or anomaly.name
        lines.append(f"  {anomaly.severity}: {anomaly.meaning} ({example})")
        if anomaly.remedy:
            lines.append(f"    remedy: {anomaly.remedy}")
    if summary.gathered is not None:
        place = summary.gathered
        lines.append(f"  copied to {place.folder} on {place.host}, which holds the whole run")
    elif any(rank.traces for rank in summary.ranks) and not is_part:
        lines.append(f"next: augury diagnose {shlex.quote(str(out))}")
    return lines


def _rank_line(rank: RankSummary) -> str:
    parts = [f"rank {rank.rank} on {rank.host}", format_count(rank.num_steps, "step")]
    if rank.plain_step_ns is not None:
        parts.append(f"{format_ns(rank.plain_step_ns)} per step")
    if rank.recorded_step_ns is not None:
        parts.append(f"{format_ns(rank.recorded_step_ns)} while recording")
    if len(rank.traces) > MAX_LISTED_TRACES:
        return ", ".join([*parts, f"{len(rank.traces)} traces: {rank.traces[0]}, ..."])
    return ", ".join([*parts, *rank.traces])


def _wire_line(wire: WireSummary) -> str:
    """Returns the line about TCP traffic, which accounts for all calls, kept or not."""
    return (
        f"TCP traffic of {format_count(wire.num_processes, 'process', 'processes')},"
        f" {format_count(wire.num_connections, 'connection')}:"
        f" {format_count(wire.num_events, 'event')} kept, {wire.events_written_over:,} overwritten,"
        f" {format_count(wire.calls_not_kept, 'call')} outside of windows counted but not kept"
    )


def _module_times_line(times: ModuleTimesSummary) -> str:
    """Returns the line about timed modules, with one of the reasons for missing times."""
    more = f" (and {len(times.troubles) - 1} more)" if len(times.troubles) > 1 else ""
    if not times.num_groups:
        return f"no module was timed: {times.troubles[0]}{more}"
    said = (
        f"timed: {format_count(times.num_modules, 'module')} in"
        f" {format_count(times.num_groups, 'group')} of equal ones, {times.num_compiled} of them"
        " compiled too"
    )
    if not times.troubles:
        return said
    return f"{said}; without times: {times.troubles[0]}{more}"


def _watch_line(watch: WatchSummary, out: Path) -> str:
    if not watch.num_windows:
        return "watched: no window was complete before the end of the job"
    return (
        f"watched: {format_count(watch.num_windows, 'window')},"
        f" {format_count(watch.num_changes, 'change')} of the verdict, in {out / watch.file}"
    )
