"""A change for the eyes: before, after, gain, and how sure."""

from __future__ import annotations

from typing import TextIO

from augury.core.results.replay import Share, WhatIfResult
from augury.core.units import format_ns, format_percent
from augury.report.console import make_console
from augury.report.safe_text import safe


def render_change(result: WhatIfResult, file: TextIO, *, name: str) -> None:
    from rich.table import Table
    from rich.text import Text

    console = make_console(file)
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(style="dim")
    table.add_column()
    table.add_row("before", format_ns(result.baseline_step_ns))
    after = format_ns(result.predicted_step_ns)
    if result.interval_ns:
        low, high = result.interval_ns
        after += f"   90 % sure of {format_ns(low)} to {format_ns(high)}"
    table.add_row("after", after)
    table.add_row("gain", format_percent(result.gain_pct, signed=True))
    table.add_row("then", _shares(result.critical_path_summary.by_kind))
    with console.capture() as capture:
        line = Text(safe(name, max_chars=console.width), style="bold")
        line.append("  a step, if:", style="not bold")
        console.print(line)
        for change in result.changes:
            console.print(f"  {safe(change, max_chars=200)}", highlight=False, markup=False)
        console.print(table)
        for anomaly in result.ledger:
            console.print(f"  {safe(anomaly.meaning, max_chars=300)}", style="yellow", markup=False)
    file.writelines(f"{line.rstrip(' ')}\n" for line in capture.get().splitlines())


def _shares(shares: list[Share]) -> str:
    """What the critical path is made of."""
    return ", ".join(f"{share.name} {share.share_pct:.0f} %" for share in shares[:4])
