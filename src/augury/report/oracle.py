"""Terminal report of the oracle: strategies by number of devices."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TextIO

from augury.core.results.oracle import OracleResult, OracleRow, Recommendation
from augury.core.units import NS_PER_S, format_bytes, format_ns
from augury.report.console import columns, make_console, title
from augury.report.safe_text import safe

if TYPE_CHECKING:
    from rich.console import Console


def render_oracle(result: OracleResult, file: TextIO) -> None:
    console = make_console(file)
    with console.capture() as capture:
        _head(console, result)
        _steps(console, result)
        _fastest(console, result)
        _infeasible(console, result)
        for line in ["", *verdict_lines(result)]:
            console.print(line)
        for warning in result.warnings:
            console.print(f"warning: {safe(warning, max_chars=300)}", style="yellow")
        for note in result.notes:
            console.print(f"note: {safe(note, max_chars=300)}")
    file.writelines(f"{line.rstrip(' ')}\n" for line in capture.get().splitlines())


def _head(console: Console, result: OracleResult) -> None:
    from rich.text import Text

    line = Text(safe(result.model, max_chars=console.width), style="bold")
    line.append(
        f"  {result.num_layers} layers, {result.num_parameters / 1e6:.1f} M parameters,"
        f" {time_words(result.sample_s)} per sample on one {safe(result.device)}"
        f" ({result.precision})",
        style="not bold",
    )
    console.print(line)
    console.print(
        f"{safe(result.cluster)}, {format_bytes(result.memory_limit_bytes)} per device;"
        f" constants: {safe(result.constants, max_chars=120)}"
    )


def _steps(console: Console, result: OracleResult) -> None:
    """Table of step times, with the fastest in bold."""
    from rich.text import Text

    how = "replayed, " if any(row.fidelity == "replay" for row in result.rows) else ""
    title(console, "Time per step", f"{how}by strategy and number of devices; - infeasible")
    numbers = sorted({row.devices for row in result.rows})
    batches = {row.devices: row.global_batch for row in result.rows}
    best = {one.devices: one.strategy for one in result.fastest}
    for some in _chunks(numbers, console.width):
        table = columns("devices", *(f">{number}" for number in some))
        table.add_row("batch", *(str(batches[number]) for number in some), style="dim")
        for strategy in dict.fromkeys(row.strategy for row in result.rows):
            cells = []
            for number in some:
                row = find_row(result, strategy, number)
                is_best = best.get(number) == strategy
                text = time_words(row.step_s) if row is not None and row.feasible else "-"
                cells.append(Text(text, style="bold" if is_best else ""))
            table.add_row(strategy, *cells)
        console.print(table)


def _fastest(console: Console, result: OracleResult) -> None:
    if not result.fastest:
        return
    title(console, "Fastest", "strategy for each number of devices")
    console.print(
        "efficiency: speed relative to devices with evenly divided compute and no communication;"
        " margin: lead over the next strategy; confidence: probability of that order",
        style="dim",
    )
    has_epoch = any(row.epoch_s is not None for row in result.rows)
    has_cost = any(row.cost_per_epoch is not None for row in result.rows)
    table = columns(
        ">devices", "strategy", ">step", ">efficiency", ">memory",
        *([">epoch"] if has_epoch else []), *([">cost"] if has_cost else []),
        "~bottleneck", ">margin", ">confidence",
    )  # fmt: skip
    for one in result.fastest:
        row = find_row(result, one.strategy, one.devices)
        assert row is not None
        table.add_row(
            str(one.devices),
            one.strategy,
            time_words(row.step_s),
            f"{row.efficiency_pct:.0f} %",
            format_bytes(row.memory_bytes),
            *([time_words(row.epoch_s or 0)] if has_epoch else []),
            *([f"{row.cost_per_epoch or 0:.2f}"] if has_cost else []),
            row.bottleneck,
            "" if one.margin_pct is None else f"{one.margin_pct:.0f} %",
            "" if one.confidence_pct is None else f"{one.confidence_pct:.0f} %",
        )
    console.print(table)


def _infeasible(console: Console, result: OracleResult) -> None:
    refused = refusals(result)
    if not refused:
        return
    title(console, "Infeasible")
    table = columns("strategy", "~devices", "~reason")
    for one in refused:
        table.add_row(*one)
    console.print(table)


def refusals(result: OracleResult) -> list[tuple[str, str, str]]:
    """Strategy, numbers of devices, and the reason why they are infeasible. Reasons that differ
    only in their figures appear once."""
    refused: dict[tuple[str, str], list[OracleRow]] = {}
    for row in result.rows:
        if row.why is not None:
            alike = re.sub(r"[\d.,]+( [kMGT]?B)?", "", row.why)
            refused.setdefault((row.strategy, alike), []).append(row)
    asked = sorted({row.devices for row in result.rows})
    return [
        (strategy, _span([row.devices for row in rows], asked), safe(rows[0].why or ""))
        for (strategy, _), rows in refused.items()
    ]


def _span(numbers: list[int], asked: list[int]) -> str:
    """Range of numbers if it has all that were asked for in between; otherwise a list."""
    first, last = numbers[0], numbers[-1]
    if len(numbers) > 2 and numbers == asked[asked.index(first) : asked.index(last) + 1]:
        return f"{first} to {last}"
    return ", ".join(map(str, numbers))


def verdict_lines(result: OracleResult) -> list[str]:
    """The recommendation in words."""
    best = result.recommended
    if best is None:
        return ["No strategy is feasible."]
    row = find_row(result, best.strategy, best.devices)
    assert row is not None
    low, high = row.interval_s
    return [
        f"recommended: {with_axes(row)} on {best.devices} devices,"
        f" {best.samples_per_s:,.0f} samples/s; {time_words(best.step_s)} per step,"
        f" 90 % interval {time_words(low)} to {time_words(high)}",
        f"  {_margin(best)}; bottleneck: {row.bottleneck}; limit: {safe(row.limit)}",
    ]


def _margin(best: Recommendation) -> str:
    alike = f"equally fast: {', '.join(best.alike)}; " if best.alike else ""
    if best.runner_up is None or best.margin_pct is None or best.confidence_pct is None:
        return f"{alike}no other strategy is feasible there"
    return (
        f"{alike}{best.margin_pct:.0f} % ahead of {best.runner_up},"
        f" with {best.confidence_pct:.0f} % confidence"
    )


def with_axes(row: OracleRow) -> str:
    degrees = [f"{name} {number}" for name, number in row.axes.items() if number > 1]
    return f"{row.strategy} ({', '.join(degrees)})" if len(row.axes) > 1 else row.strategy


def find_row(result: OracleResult, strategy: str, devices: int) -> OracleRow | None:
    for row in result.rows:
        if row.strategy == strategy and row.devices == devices:
            return row
    return None


def _chunks(numbers: list[int], width: int) -> list[list[int]]:
    """Splits the numbers into tables of as many columns as fit."""
    per_table = max(1, (width - 14) // 9)
    return [numbers[i : i + per_table] for i in range(0, len(numbers), per_table)]


def time_words(value_s: float) -> str:
    if value_s >= 7200:
        return f"{value_s / 3600:.3g} h"
    if value_s >= 120:
        return f"{value_s / 60:.3g} min"
    return format_ns(value_s * NS_PER_S)
