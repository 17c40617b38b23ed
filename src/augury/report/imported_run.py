"""Lines about a run made of imported traces, for the terminal."""

from __future__ import annotations

from pathlib import Path

from augury.core.results.imported_run import ImportResult
from augury.core.units import format_count
from augury.report.safe_text import safe


def imported_lines(result: ImportResult, out: Path) -> list[str]:
    """Returns what was read and matched, and each anomaly with its first example."""
    lines = [
        f"{out}: {result.num_ranks} of {format_count(result.world_size, 'rank')},"
        f" {format_count(result.num_events, 'event')}, {format_count(result.num_steps, 'step')}",
        f"{format_count(result.num_matched, 'collective')} matched across ranks,"
        f" {format_count(result.num_unmatched, 'event')} unmatched",
    ]
    for anomaly in result.ledger:
        times = format_count(anomaly.count, "time")
        example = f": {anomaly.example}" if anomaly.example else ""
        lines.append(f"{anomaly.severity}: {anomaly.meaning} ({times}){example}")
    return [safe(line, max_chars=2000) for line in lines]
