"""What ``augury run`` says when the job has ended: what was recorded, what was not, what to do."""

from __future__ import annotations

import os
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from augury.capture.launcher.run_summary import RankSummary, RunSummary
    from augury.capture.launcher.wire_summary import WireSummary

MAX_NAMED = 3
"""Traces of a rank that are named one by one."""


@dataclass(slots=True, kw_only=True)
class Ending:
    out: Path
    """As the user wrote it."""
    folder: Path
    rank: int | None
    """That of this process; None if it stands for the whole job."""
    as_json: bool
    wire: bool = False
    """Whether what went over the wire was to be recorded."""
    exit_code: int = 0

    def tell(self) -> RunSummary:
        from augury.capture.launcher.run_summary import summarize_run

        # Rank 0 ends last, so it can speak for all.
        summary = summarize_run(self.folder, rank=self.rank or None, wire=self.wire)
        if self.as_json:
            from augury.report.as_json import encode_line

            # The job's own output came before it on the same stream.
            print(encode_line(exit_code=self.exit_code, run=str(self.out), result=summary))
        else:
            from augury.report.safe_text import safe

            # To stderr: stdout is the job's.
            for line in self._lines(summary):
                print(safe(line, max_chars=2000), file=sys.stderr)
        return summary

    def tell_unless_forked(self, pid: int) -> None:
        """At the end of the job's own process, which must not suffer from it."""
        if os.getpid() == pid:
            try:
                self.tell()
            except Exception as error:
                print(f"augury: cannot tell what was recorded: {error}", file=sys.stderr)

    def _lines(self, summary: RunSummary) -> list[str]:
        from augury.core.units import format_count

        lines = [f"augury: {format_count(len(summary.ranks), 'rank')} recorded in {self.out}"]
        if summary.is_empty and self.exit_code == 0:
            lines = [f"augury: nothing was recorded in {self.out}, though the job ended well"]
        lines += [f"  {_of_rank(rank)}" for rank in summary.ranks]
        if summary.wire is not None:
            lines.append(f"  {_of_wire(summary.wire)}")
        for anomaly in summary.ledger:
            example = anomaly.example or anomaly.name
            lines.append(f"  {anomaly.severity}: {anomaly.meaning} ({example})")
            if anomaly.remedy:
                lines.append(f"    remedy: {anomaly.remedy}")
        if summary.gathered is not None:
            place = summary.gathered
            lines.append(f"  copied to {place.folder} on {place.host}, where the whole run is")
        elif any(rank.traces for rank in summary.ranks) and not self.rank:
            lines.append(f"next: augury replay {shlex.quote(str(self.out))}")
        return lines


def _of_rank(rank: RankSummary) -> str:
    from augury.core.units import format_count, format_ns

    parts = [f"rank {rank.rank} on {rank.host}", format_count(rank.num_steps, "step")]
    if rank.plain_step_ns is not None:
        parts.append(f"{format_ns(rank.plain_step_ns)} per step")
    if rank.recorded_step_ns is not None:
        parts.append(f"{format_ns(rank.recorded_step_ns)} while recording")
    if len(rank.traces) > MAX_NAMED:
        return ", ".join([*parts, f"{len(rank.traces)} traces: {rank.traces[0]}, ..."])
    return ", ".join([*parts, *rank.traces])


def _of_wire(wire: WireSummary) -> str:
    """Returns one line that accounts for all calls: those not kept are counted."""
    from augury.core.units import format_count

    return (
        f"TCP traffic of {format_count(wire.num_processes, 'process', 'processes')},"
        f" {format_count(wire.num_connections, 'connection')}:"
        f" {format_count(wire.num_events, 'event')} kept, {wire.events_written_over:,} overwritten,"
        f" {format_count(wire.calls_not_kept, 'call')} outside of windows only counted"
    )
