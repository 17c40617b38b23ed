"""Renders the summary of recorded TCP traffic for terminals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

from augury.core.ledger import Severity
from augury.core.results.wire import WireResult
from augury.core.units import format_bytes, format_count, format_ns, format_percent
from augury.report.console import columns, make_console, title
from augury.report.safe_text import safe

if TYPE_CHECKING:
    from rich.console import Console

_BLOCKS = " ▁▂▃▄▅▆▇█"


def render_wire(result: WireResult, file: TextIO, *, name: str, top: int) -> None:
    console = make_console(file)
    with console.capture() as capture:
        _head(console, result, name)
        _links(console, result, top)
        _collectives(console, result)
        _ledger(console, result)
    file.writelines(f"{line.rstrip(' ')}\n" for line in capture.get().splitlines())


def _head(console: Console, result: WireResult, name: str) -> None:
    from rich.text import Text

    ranks = {process.rank for process in result.processes if process.rank is not None}
    calls = sum(process.num_calls for process in result.processes)
    line = Text(safe(name, max_chars=console.width), style="bold")
    line.append(
        f"  {format_count(len(ranks), 'rank')},"
        f" {format_count(len(result.connections), 'connection')},"
        f" {format_count(calls, 'call')}, {format_count(result.num_messages, 'message')}",
        style="not bold",
    )
    console.print(line)
    console.print(
        f"payload {format_bytes(result.payload_bytes)}, "
        f"{result.attributed_pct:.2f} % of it attributed; sent = received on "
        f"{result.num_equal_connections} of"
        f" {format_count(result.num_whole_connections, 'connection')}"
    )
    console.print(
        ", ".join(
            f"{kind} {format_bytes(size)}" for kind, size in result.bytes_by_kind.items() if size
        ),
        style="dim",
    )


def _links(console: Console, result: WireResult, top: int) -> None:
    if not result.links:
        return
    shown = sorted(result.links, key=lambda link: -link.size_bytes)[:top]
    left = len(result.links) - len(shown)
    title(console, "Links", f"the {top} with most bytes, of {len(result.links)}" if left else "")
    table = columns(
        ">from",
        ">to",
        ">bytes",
        ">messages",
        ">attributed",
        ">rate",
        ">delay",
        ">resent",
        ">blocked",
    )
    for link in sorted(shown, key=lambda link: (link.src, link.dst)):
        share = 100 * link.attributed_bytes / link.payload_bytes if link.payload_bytes else 100.0
        table.add_row(
            str(link.src),
            str(link.dst),
            format_bytes(link.size_bytes),
            f"{link.num_messages:,}",
            format_percent(share),
            "-" if link.rate_bytes_per_s is None else f"{format_bytes(link.rate_bytes_per_s)}/s",
            "-" if link.shortest_delay_ns is None else format_ns(link.shortest_delay_ns),
            "-" if link.retransmits is None else f"{link.retransmits:,}",
            "-" if link.refused_pct is None else format_percent(link.refused_pct),
        )
    console.print(table)
    for link in sorted(shown, key=lambda link: (link.src, link.dst)):
        if link.use_over_step_pct:
            console.print(
                f"utilization of {link.src} to {link.dst} over a step "
                f" {sparkline(link.use_over_step_pct)}"
            )
    console.print(
        "rate: median of large messages; delay: the shortest; blocked: share of busy time in which "
        "the kernel accepted no more data",
        style="dim",
    )


def _collectives(console: Console, result: WireResult) -> None:
    if not result.collectives:
        return
    title(console, "Collectives")
    table = columns("kind", "algorithm", ">ranks", ">count", ">tensors", ">payload", ">exact")
    for row in result.collectives:
        table.add_row(
            row.kind,
            row.algorithm,
            str(row.num_ranks),
            f"{row.count:,}",
            format_bytes(row.size_bytes),
            format_bytes(row.payload_bytes),
            "-" if row.expected_bytes is None else f"{row.num_exact:,}",
        )
    console.print(table)
    spent = result.time_of_collectives
    if spent is not None:
        console.print(
            f"of their time {spent.waiting_for_ranks_pct:.0f} % waiting for the last rank, "
            f"{spent.on_the_way_pct:.0f} % messages in flight, "
            f"{spent.processors_pct:.0f} % processing"
        )


def _ledger(console: Console, result: WireResult) -> None:
    if not result.ledger:
        return
    title(console, "Warnings")
    styles = {Severity.INFO: "dim", Severity.WARNING: "yellow", Severity.ERROR: "red"}
    for anomaly in result.ledger:
        example = f" ({safe(anomaly.example, max_chars=120)})" if anomaly.example else ""
        times = format_count(anomaly.count, "time")
        console.print(
            f"{safe(anomaly.meaning, max_chars=300)}: {times}{example}",
            style=styles[anomaly.severity],
        )


def sparkline(shares_pct: Sequence[float]) -> str:
    """Returns one character per slice, full at 100 %."""
    return "".join(_BLOCKS[round(min(100.0, max(0.0, s)) / 100 * 8)] for s in shares_pct)
