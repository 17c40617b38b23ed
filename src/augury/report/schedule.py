"""Policies side by side, for the eyes."""

from __future__ import annotations

from typing import TYPE_CHECKING, TextIO

from augury.core.results.schedule import Curve, PolicyResult, ScheduleResult
from augury.core.units import format_bytes, format_ns, format_percent
from augury.report.console import columns, make_console, title
from augury.report.safe_text import safe

if TYPE_CHECKING:
    from rich.console import Console

STEPS_WIDTH = 64


def render_schedule(result: ScheduleResult, file: TextIO, *, name: str) -> None:
    console = make_console(file)
    with console.capture() as capture:
        _head(console, result, name)
        _table(console, result)
        _steps(console, result)
        for line in _verdict(result):
            console.print(line)
        for one in result.policies:
            if one.trouble is not None:
                why = safe(one.trouble, max_chars=300)
                said = f"  {safe(one.policy)} could not be replayed: {why}"
                console.print(said, style="yellow", markup=False)
        for warning in result.warnings:
            said = f"  warning: {safe(warning, max_chars=400)}"
            console.print(said, style="yellow", markup=False)
        for anomaly in result.ledger:
            console.print(f"  {safe(anomaly.meaning, max_chars=300)}", style="yellow")
    file.writelines(f"{line.rstrip(' ')}\n" for line in capture.get().splitlines())


def _head(console: Console, result: ScheduleResult, name: str) -> None:
    from rich.text import Text

    line = Text(safe(name, max_chars=console.width), style="bold")
    line.append(
        f"  {result.num_ranks} ranks, {result.scheme}, {result.num_gradients} gradients of"
        f" {format_bytes(result.size_bytes)}",
        style="not bold",
    )
    console.print(line)
    rate = f"{1e3 / result.ns_per_byte:.0f} MB/s" if result.ns_per_byte else "any rate"
    console.print(
        f"compute {format_ns(result.compute_ns)}, communication {rate} and"
        f" {format_ns(result.overhead_ns)} a piece: {result.ratio:.2f} of compute"
    )
    measured = (
        f"   measured {format_ns(result.measured_step_ns)}" if result.measured_step_ns else ""
    )
    console.print(f"{result.baseline} {format_ns(result.baseline_step_ns)}{measured}")


def _table(console: Console, result: ScheduleResult) -> None:
    title(console, "Policies", f"estimated lower bound for any order: {format_ns(result.bound_ns)}")
    has_replay = any(one.replayed_step_ns is not None for one in result.policies)
    table = columns(
        "policy",
        *([">replayed"] if has_replay else []),
        ">model",
        ">gain",
        ">waits",
        ">link",
        ">busy",
        ">pieces",
        ">gap",
    )
    for one in result.policies:
        style = "bold" if one.policy == result.best else None
        table.add_row(*_row(one, has_replay), style=style)
    console.print(table)


def _row(one: PolicyResult, has_replay: bool) -> list[str]:
    replayed = format_ns(one.replayed_step_ns) if one.replayed_step_ns is not None else ""
    if one.trouble is not None:
        replayed = "failed"
    return [
        safe(one.policy),
        *([replayed] if has_replay else []),
        format_ns(one.evaluated_step_ns),
        format_percent(one.gain_pct, signed=True) if one.trouble is None else "",
        format_ns(one.waiting_ns),
        f"{one.link_use_pct:.0f} %",
        f"{one.device_use_pct:.0f} %",
        f"{one.num_pieces:,}",
        format_percent(one.gap_pct),
    ]


def _steps(console: Console, result: ScheduleResult) -> None:
    """The stepwise figure in two lines: how much is there, from empty to full."""
    best = next(one for one in result.policies if one.policy == result.best)
    end_ns = max(best.evaluated_step_ns, 1)
    title(console, "Released and arrived", f"{safe(result.best)}, over {format_ns(end_ns)}")
    is_utf = console.encoding.lower().startswith("utf")
    for label, curve in (("released", result.released), ("arrived", best.transferred)):
        console.print(f"{label:<9} {_stairs(curve, result.size_bytes, end_ns, is_utf=is_utf)}")
    at = min(STEPS_WIDTH - 1, result.backward_ns * STEPS_WIDTH // end_ns)
    console.print(f"{'':<9} {'backward'[:at]:<{at}}| forward", style="dim")


def _stairs(curve: Curve, size_bytes: int, end_ns: int, *, is_utf: bool) -> str:
    levels = " ▁▂▃▄▅▆▇█" if is_utf else " .:-=+*%#"
    drawn = []
    for column in range(STEPS_WIDTH):
        until_ns = end_ns * (column + 1) / STEPS_WIDTH
        there = max((held for at_ns, held in curve if at_ns <= until_ns), default=0)
        drawn.append(levels[min(8, 8 * there // max(1, size_bytes))])
    return "".join(drawn)


def _verdict(result: ScheduleResult) -> list[str]:
    best = next(one for one in result.policies if one.policy == result.best)
    headroom = (
        f"headroom {format_percent(result.headroom_pct)} of the step;"
        f" noise hides {format_percent(result.noise_pct)}"
    )
    if not result.can_pay:
        gain = format_percent(best.gain_pct, signed=True)
        found = f"best gain {gain}; {headroom}"
        if best.trouble is None and best.gain_pct <= 0 and result.headroom_pct > result.noise_pct:
            return ["", f"None of these policies gains anything: {found}. Leave the run as it is."]
        return ["", f"Scheduling cannot pay here: {found}. Leave the run as it is."]
    sure = ""
    if best.interval_ns:
        low, high = best.interval_ns
        sure = f", 90 % sure of {format_ns(low)} to {format_ns(high)}"
    kind = "stock DDP with a list of bucket sizes" if best.is_stock_ddp else "pieces in order"
    gain = format_percent(best.gain_pct, signed=True)
    return ["", f"best: {safe(best.policy)} ({kind}), {gain}{sure}", headroom]
