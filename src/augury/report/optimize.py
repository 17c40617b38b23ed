"""Renders optimizations and predicted plans for the terminal: the plan, its gain, and the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING, TextIO

from augury.core.results.optimization import (
    Advice,
    OptimizeResult,
    PlanReplayResult,
    SectionShare,
    TriedChange,
)
from augury.core.units import format_bytes, format_count, format_ns, format_percent
from augury.report.console import columns, make_console, title
from augury.report.phrases import gain_words, interval_words, print_notes, print_warnings
from augury.report.safe_text import safe

if TYPE_CHECKING:
    from rich.console import Console

_LEGEND = (
    "share: part of the recorded step that the section saves in this combination",
    "error: standard error of the prediction of the section, as a share of the step",
)


def render_optimization(result: OptimizeResult, file: TextIO, *, name: str) -> None:
    console = make_console(file)
    with console.capture() as capture:
        _head(console, result, name)
        print_warnings(console, result.ledger, result.warnings)
        if result.sections:
            heading = "Plan" if result.can_pay else "Best combination"
            _sections(console, heading, result.sections, result.predicted_step_ns)
        _tried(console, result.tried)
        _advice(console, result.advice)
        for line in ["", *verdict_of_optimization(result)]:
            console.print(line)
        print_notes(console, result.ledger)
    file.writelines(f"{line.rstrip(' ')}\n" for line in capture.get().splitlines())


def render_planned(result: PlanReplayResult, file: TextIO, *, name: str, top: int) -> None:
    """Renders the prediction of a plan; ``top`` limits the sections that are listed."""
    console = make_console(file)
    with console.capture() as capture:
        _name(console, name, "predicted step under the plan")
        print_warnings(console, result.ledger)
        _sections(console, "Plan", result.sections[:top], result.predicted_step_ns)
        console.print("")
        console.print(
            f"{format_ns(result.baseline_step_ns)} before,"
            f" {format_ns(result.predicted_step_ns)} after: gain {gain_words(result.gain_pct)}"
        )
        if result.interval_ns is not None:
            console.print(interval_words(result.interval_ns))
        print_notes(console, result.ledger)
    file.writelines(f"{line.rstrip(' ')}\n" for line in capture.get().splitlines())


def _name(console: Console, name: str, words: str) -> None:
    from rich.text import Text

    line = Text(safe(name, max_chars=console.width), style="bold")
    line.append(f"  {words}", style="not bold")
    console.print(line)


def _head(console: Console, result: OptimizeResult, name: str) -> None:
    effort = result.search
    _name(console, name, format_count(result.num_ranks, "rank"))
    measured = f", measured {format_ns(result.measured_step_ns)}" if result.measured_step_ns else ""
    console.print(
        f"baseline: recorded step, replayed {format_ns(result.baseline_step_ns)}{measured}"
    )
    ended = "" if effort.is_complete else ", ended by the budget"
    console.print(
        f"searched {format_count(effort.num_candidates, 'combination')}"
        f" ({effort.num_replayed:,} replayed exactly) in {effort.elapsed_s:.1f} s{ended}"
    )


def _sections(console: Console, heading: str, sections: list[SectionShare], step_ns: int) -> None:
    title(console, heading, f"predicted step {format_ns(step_ns)}")
    table = columns("section", "~change", ">without it", ">share", ">error")
    for one in sections:
        table.add_row(
            safe(one.section),
            safe(one.what),
            format_ns(one.without_ns),
            format_percent(one.share_pct, signed=True),
            format_percent(one.error_pct),
        )
    console.print(table)
    for line in _LEGEND:
        console.print(line, style="dim")


def _tried(console: Console, tried: list[TriedChange]) -> None:
    if not tried:
        return
    title(console, "Tried", "not in the plan; gains are those of each change alone")
    table = columns("section", "~change", ">gain", "~reason")
    for one in tried:
        table.add_row(
            safe(one.section),
            safe(one.what) if one.what != one.section else "",
            "" if one.gain_pct is None else gain_words(one.gain_pct),
            safe(one.reason, max_chars=400),
        )
    console.print(table)


def _advice(console: Console, advice: list[Advice]) -> None:
    if not advice:
        return
    title(console, "By hand", "changes that only the program itself can make")
    table = columns("~change", ">step", ">gain", ">peak memory")
    for one in advice:
        peak = "" if one.peak_bytes is None else format_bytes(one.peak_bytes)
        table.add_row(safe(one.what), format_ns(one.step_ns), gain_words(one.gain_pct), peak)
    console.print(table)
    for lines in dict.fromkeys(one.lines for one in advice):
        console.print("")
        for line in lines.splitlines():
            console.print(f"    {safe(line, max_chars=200)}", style="dim")


def verdict_of_optimization(result: OptimizeResult) -> list[str]:
    """The verdict in words: the gain, or that no plan pays off; and the memory."""
    noise = f"gains below {format_percent(result.noise_pct)} cannot be measured"
    if not result.can_pay and result.gain_pct > result.noise_pct:
        lines = [
            f"This combination gains {gain_words(result.gain_pct)}, but a plan for it cannot be"
            " written: the run does not say which gradient travels in which bucket."
        ]
    elif not result.can_pay:
        found = f"best gain {gain_words(result.gain_pct)}; {noise}"
        lines = [f"No plan pays off here: {found}. Leave the run as it is."]
    else:
        lines = [
            f"predicted step {format_ns(result.predicted_step_ns)}:"
            f" gain {gain_words(result.gain_pct)}",
            *([interval_words(result.interval_ns)] if result.interval_ns else []),
            noise,
        ]
    return [*lines, *_memory_lines(result)]


def _memory_lines(result: OptimizeResult) -> list[str]:
    if result.peak_bytes is None:
        return []
    line = f"peak memory {format_bytes(result.peak_bytes)}"
    if result.baseline_peak_bytes is not None and result.baseline_peak_bytes != result.peak_bytes:
        line += f", {format_bytes(result.baseline_peak_bytes)} before"
    if result.memory_limit_bytes is not None:
        line += f"; limit {format_bytes(result.memory_limit_bytes)}"
    if result.memory_target_bytes is not None:
        target = format_bytes(result.memory_target_bytes)
        off = format_percent(result.memory_margin_pct)
        line += f", planned for {target}: predicted peaks may be {off} off"
    return [line]
