"""Phrases that several reports share: counts, gains, intervals and warnings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from augury.core.ledger import Anomaly, Severity
from augury.core.units import format_bytes, format_ns, format_percent
from augury.report.console import title
from augury.report.safe_text import safe

if TYPE_CHECKING:
    from rich.console import Console

    from augury.core.results.diagnosis import Figure

MAX_LOSS_PCT = 50.0
"""Larger losses are stated as factors."""

_STYLES = {Severity.INFO: "dim", Severity.WARNING: "yellow", Severity.ERROR: "red"}


def gain_words(gain_pct: float) -> str:
    """``+12.0 %``, ``-8.5 %``; a step that takes 2.4 times as long is ``2.4x slower``."""
    if gain_pct < -MAX_LOSS_PCT:
        return f"{1 - gain_pct / 100:.1f}x slower"
    return format_percent(gain_pct, signed=True)


def capitalized(words: str) -> str:
    return f"{words[:1].upper()}{words[1:]}"


def sentence(words: str) -> str:
    """Words with a capital letter and a full stop."""
    return f"{capitalized(words).rstrip('.')}."


def interval_words(interval_ns: tuple[int, int]) -> str:
    low, high = interval_ns
    return f"90 % interval {format_ns(low)} to {format_ns(high)}"


def figure_words(figure: Figure) -> str:
    """The value of a Figure with its unit."""
    value = figure.value
    if figure.unit == "ns":
        return format_ns(round(value))
    if figure.unit == "bytes":
        return format_bytes(round(value))
    if figure.unit == "bytes/s":
        return f"{format_bytes(round(value))}/s"
    if figure.unit == "%":
        return format_percent(value)
    if figure.unit == "x":
        return f"{value:.2f}x"
    return f"{value:,.0f}" if value == round(value) else f"{value:,.2f}"


def kinds_by_reason(not_examined: dict[str, str]) -> list[tuple[str, str]]:
    """Kinds that a diagnosis did not examine and the reason, kinds with one reason together."""
    kinds: dict[str, list[str]] = {}
    for kind, reason in not_examined.items():
        kinds.setdefault(reason, []).append(kind)
    return [(safe(", ".join(some)), safe(reason)) for reason, some in kinds.items()]


def print_warnings(console: Console, ledger: Iterable[Anomaly], texts: Sequence[str] = ()) -> None:
    """Prints warnings and errors; ``texts`` are warnings that are no anomalies of a trace."""
    found = [one for one in ledger if one.severity is not Severity.INFO]
    if found or texts:
        title(console, "Warnings")
    for text in texts:
        _print_item(console, Severity.WARNING, safe(text))
    for anomaly in found:
        _print_anomaly(console, anomaly)


def print_notes(console: Console, ledger: Iterable[Anomaly]) -> None:
    """Prints anomalies that need no attention."""
    found = [one for one in ledger if one.severity is Severity.INFO]
    if found:
        title(console, "Notes")
    for anomaly in found:
        _print_anomaly(console, anomaly)


def _print_anomaly(console: Console, anomaly: Anomaly) -> None:
    times = f" ({anomaly.count:,} times)" if anomaly.count > 1 else ""
    details = [
        *([("dim", f"example: {safe(anomaly.example)}")] if anomaly.example else []),
        *([("none", f"remedy: {safe(anomaly.remedy)}")] if anomaly.remedy else []),
    ]
    words = f"{safe(anomaly.name)}: {safe(anomaly.meaning)}{times}"
    _print_item(console, anomaly.severity, words, details)


def _print_item(
    console: Console, severity: Severity, text: str, details: Sequence[tuple[str, str]] = ()
) -> None:
    """Continuation lines are indented as the text is."""
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    item = Table.grid(padding=(0, 2, 0, 0))
    item.add_column(no_wrap=True)
    item.add_column()
    item.add_row(Text(severity.value, _STYLES[severity]), Text(text))
    for style, detail in details:
        item.add_row("", Text(detail, style))
    console.print(Padding(item, (0, 0)))
