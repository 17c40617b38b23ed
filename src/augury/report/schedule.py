"""Renders the assessment of policies for the terminal: a table, and a verdict."""

from __future__ import annotations

from typing import TYPE_CHECKING, TextIO

from augury.core.results.schedule import Curve, PolicyResult, ScheduleResult
from augury.core.units import format_bytes, format_count, format_ns, format_percent
from augury.report.console import columns, make_console, title
from augury.report.phrases import gain_words, interval_words, print_notes, print_warnings
from augury.report.safe_text import safe

if TYPE_CHECKING:
    from rich.console import Console

STEPS_WIDTH = 64
_REPLAYED = "step: replay of the recorded run with the policy's order"
_EVALUATED = "step: estimate of the policies' own model, since no run was recorded"
_LEGEND = (
    "exposed: communication that compute does not hide; link, compute: utilization",
    "over bound: how far the step is above the lower bound",
)


def render_schedule(result: ScheduleResult, file: TextIO, *, name: str) -> None:
    console = make_console(file)
    with console.capture() as capture:
        _head(console, result, name)
        print_warnings(console, result.ledger, result.warnings)
        _table(console, result)
        _steps(console, result)
        for line in ["", *verdict_lines(result)]:
            console.print(line)
        print_notes(console, result.ledger)
    file.writelines(f"{line.rstrip(' ')}\n" for line in capture.get().splitlines())


def _head(console: Console, result: ScheduleResult, name: str) -> None:
    from rich.text import Text

    line = Text(safe(name, max_chars=console.width), style="bold")
    line.append(
        f"  {format_count(result.num_ranks, 'rank')}, {result.scheme},"
        f" {format_count(result.num_gradients, 'gradient')} of {format_bytes(result.size_bytes)}",
        style="not bold",
    )
    console.print(line)
    rate = f"{1e3 / result.ns_per_byte:.0f} MB/s" if result.ns_per_byte else "unlimited"
    console.print(
        f"compute {format_ns(result.compute_ns)}; communication {result.ratio:.2f} times that"
        f" ({rate}, {format_ns(result.overhead_ns)} per piece)"
    )
    measured = f", measured {format_ns(result.measured_step_ns)}" if result.measured_step_ns else ""
    is_recorded = result.baseline == "recorded"
    how = "recorded order, replayed" if is_recorded else f"policy {result.baseline}"
    console.print(f"baseline: {how} {format_ns(result.baseline_step_ns)}{measured}")


def _table(console: Console, result: ScheduleResult) -> None:
    title(console, "Policies", f"estimated lower bound for any order: {format_ns(result.bound_ns)}")
    has_replay = any(one.replayed_step_ns is not None for one in result.policies)
    table = columns(
        "policy",
        ">step",
        ">gain",
        ">exposed",
        ">link",
        ">compute",
        ">pieces",
        ">over bound",
    )
    for one in result.policies:
        style = "bold" if one.policy == result.best else None
        table.add_row(*_row(one), style=style)
    console.print(table)
    for line in (_REPLAYED if has_replay else _EVALUATED, *_LEGEND):
        console.print(line, style="dim")
    for one in result.policies:
        if one.trouble is not None:
            why = safe(one.trouble, max_chars=300)
            console.print(f"{safe(one.policy)} could not be replayed: {why}", style="yellow")


def _row(one: PolicyResult) -> list[str]:
    return [
        safe(one.policy),
        format_ns(one.step_ns) if one.trouble is None else "failed",
        gain_words(one.gain_pct) if one.trouble is None else "",
        format_ns(one.waiting_ns),
        f"{one.link_use_pct:.0f} %",
        f"{one.device_use_pct:.0f} %",
        f"{one.num_pieces:,}",
        format_percent(one.gap_pct),
    ]


def _steps(console: Console, result: ScheduleResult) -> None:
    """Draws released and arrived bytes over time, from none to all, in one line each."""
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
        arrived = max((held for at_ns, held in curve if at_ns <= until_ns), default=0)
        drawn.append(levels[min(8, 8 * arrived // max(1, size_bytes))])
    return "".join(drawn)


def verdict_lines(result: ScheduleResult) -> list[str]:
    """The verdict in words: first the best policy, or that none pays off."""
    best = next(one for one in result.policies if one.policy == result.best)
    headroom = (
        f"headroom {format_percent(result.headroom_pct)} of the step;"
        f" gains below {format_percent(result.noise_pct)} cannot be measured"
    )
    if not result.can_pay:
        found = f"best gain {gain_words(best.gain_pct)}; {headroom}"
        if best.trouble is None and best.gain_pct <= 0 and result.headroom_pct > result.noise_pct:
            return [f"None of these policies gains anything: {found}. Leave the run as it is."]
        return [f"Scheduling does not pay off here: {found}. Leave the run as it is."]
    kind = "stock DDP with a list of bucket sizes" if best.is_stock_ddp else "pieces in order"
    return [
        f"best: {safe(best.policy)} ({kind}), gain {gain_words(best.gain_pct)}",
        *([interval_words(best.interval_ns)] if best.interval_ns else []),
        headroom,
    ]
