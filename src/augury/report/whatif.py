"""Renders a predicted change for the terminal: before, after, interval and gain."""

from __future__ import annotations

from typing import TextIO

from augury.core.results.replay import Share, WhatIfResult
from augury.core.units import format_ns
from augury.report.console import make_console
from augury.report.phrases import gain_words, interval_words, print_notes, print_warnings
from augury.report.safe_text import safe


def render_change(result: WhatIfResult, file: TextIO, *, name: str) -> None:
    from rich.table import Table
    from rich.text import Text

    console = make_console(file)
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(style="dim")
    table.add_column()
    table.add_row("before", format_ns(result.baseline_step_ns))
    after = format_ns(result.predicted_step_ns)
    if result.interval_ns:
        after += f"   {interval_words(result.interval_ns)}"
    table.add_row("after", after)
    table.add_row("gain", gain_words(result.gain_pct))
    table.add_row("critical path", _largest_shares(result.critical_path_summary.by_kind))
    with console.capture() as capture:
        heading = Text(safe(name, max_chars=console.width), style="bold")
        heading.append("  predicted step with", style="not bold")
        console.print(heading)
        for change in result.changes:
            console.print(f"  {safe(change, max_chars=200)}", highlight=False, markup=False)
        print_warnings(console, result.ledger)
        console.print("")
        console.print(table)
        print_notes(console, result.ledger)
    file.writelines(f"{line.rstrip(' ')}\n" for line in capture.get().splitlines())


def _largest_shares(shares: list[Share]) -> str:
    return ", ".join(f"{share.name} {share.share_pct:.0f} %" for share in shares[:4])
