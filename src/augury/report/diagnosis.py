"""Renders a diagnosis for the terminal: verdict, waterfall, findings."""

from __future__ import annotations

from typing import TYPE_CHECKING, TextIO

from augury.core.units import format_ns, format_percent
from augury.report.console import BarRow, add_with_bars, columns, make_console, title
from augury.report.phrases import (
    figure_words,
    gain_words,
    interval_words,
    kinds_by_reason,
    print_warnings,
)
from augury.report.safe_text import safe

if TYPE_CHECKING:
    from rich.console import Console

    from augury.core.results.diagnosis import Diagnosis, Finding

_MAX_FIGURES = 4


def render_diagnosis(found: Diagnosis, file: TextIO, *, name: str) -> None:
    from rich.text import Text

    console = make_console(file)
    with console.capture() as capture:
        heading = Text(safe(name, max_chars=60), style="bold")
        heading.append(f"  {safe(found.verdict)}", style="not bold")
        console.print(heading)
        console.print(_steps(found), style="dim")
        print_warnings(console, found.ledger)
        _waterfall(console, found)
        _findings(console, found)
        _not_examined(console, found)
    file.writelines(f"{line.rstrip(' ')}\n" for line in capture.get().splitlines())


def _steps(found: Diagnosis) -> str:
    words = [f"replayed step {format_ns(found.replayed_step_ns)}"]
    if found.measured_step_ns is not None:
        words.insert(0, f"measured step {format_ns(found.measured_step_ns)}")
    if found.interval_ns is not None:
        words.append(interval_words(found.interval_ns))
    words.append(f"gains below {format_percent(found.noise_pct)} are noise")
    return ", ".join(words)


def _waterfall(console: Console, found: Diagnosis) -> None:
    begin_ns = found.measured_step_ns or found.replayed_step_ns
    if begin_ns <= 0:
        return
    title(console, "Waterfall", "the step as one cause after the other is removed")
    rows: list[BarRow] = [
        (["step", ""], _bar(begin_ns, 0, begin_ns), [format_ns(begin_ns)]),
    ]
    for part in found.waterfall:
        removed = [f"-{format_ns(part.removed_ns)}"]
        if part.removed_ns < 0:
            removed = [f"+{format_ns(-part.removed_ns)}"]
        bar = _bar(part.step_ns, part.removed_ns, begin_ns)
        rows.append(([safe(part.name, max_chars=30), *removed], bar, [format_ns(part.step_ns)]))
    table = columns("without", ">", "", ">step")
    add_with_bars(console, table, rows)
    console.print(table)


def _bar(left_ns: int, removed_ns: int, whole_ns: int) -> list[tuple[float, str]]:
    scale = 100 / max(whole_ns, left_ns)
    return [(left_ns * scale, "cyan"), (max(0, removed_ns) * scale, "yellow")]


def _findings(console: Console, found: Diagnosis) -> None:
    if not found.findings:
        title(console, "Findings", "nothing worth doing was found")
        return
    title(console, "Findings", "ranked by gain and confidence")
    for number, finding in enumerate(found.findings, 1):
        _finding(console, number, finding)


def _finding(console: Console, number: int, finding: Finding) -> None:
    from rich.padding import Padding
    from rich.text import Text

    gain = "gain unknown" if finding.gain_pct is None else f"gain {gain_words(finding.gain_pct)}"
    if finding.gain_interval_pct is not None:
        low, high = finding.gain_interval_pct
        gain += f" ({gain_words(low)} to {gain_words(high)})"
    if finding.predicted_step_ns is not None:
        gain += f", step {format_ns(finding.predicted_step_ns)}"
    console.print(Text(f"{number}. {safe(finding.title)}", style="bold"))
    shown = [f"{safe(finding.kind, max_chars=40)}: {gain}, confidence {finding.confidence}"]
    if finding.where.layers:
        layers = ", ".join(safe(one, max_chars=60) for one in finding.where.layers)
        shown.append(f"layers: {layers}")
    figures = [
        f"{safe(one.name, max_chars=60)} {figure_words(one)}"
        for one in finding.evidence[:_MAX_FIGURES]
    ]
    if figures:
        shown.append("; ".join(figures))
    shown.append(safe(finding.action))
    if finding.command:
        shown.append(safe(finding.command, max_chars=200))
    for line in shown:
        console.print(Padding(Text(line), (0, 0, 0, 3)))


def _not_examined(console: Console, found: Diagnosis) -> None:
    if not found.not_examined:
        return
    title(console, "Not examined")
    table = columns("~", "~")
    for kinds, reason in kinds_by_reason(found.not_examined):
        table.add_row(kinds, reason)
    console.print(table, style="dim")
