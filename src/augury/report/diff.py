"""Two runs beside each other for the eyes, with what was foretold of the change."""

from __future__ import annotations

from typing import TYPE_CHECKING, TextIO

from augury.core.units import format_ns, format_percent
from augury.report.console import columns, make_console
from augury.report.safe_text import safe

if TYPE_CHECKING:
    from augury.diagnose.compare import Comparison, MeasuredRun


def render_diff(found: Comparison, file: TextIO, *, before: str, after: str) -> None:
    console = make_console(file)
    table = columns("", ">step", ">gain", "~")
    table.add_row("measured before", format_ns(found.before.step_ns), "", _said(found.before))
    if found.predicted_step_ns is not None and found.predicted_gain_pct is not None:
        table.add_row(
            "predicted",
            format_ns(found.predicted_step_ns),
            format_percent(found.predicted_gain_pct, signed=True),
            f"policy {safe(found.policy or '', max_chars=40)}",
        )
    table.add_row(
        "measured after",
        format_ns(found.after.step_ns),
        format_percent(found.gain_pct, signed=True),
        _said(found.after),
    )
    with console.capture() as capture:
        console.print(
            f"{safe(before, max_chars=60)} -> {safe(after, max_chars=60)}",
            markup=False,
            highlight=False,
        )
        console.print(table)
        console.print(_verdict(found), markup=False, highlight=False)
    file.writelines(f"{line.rstrip(' ')}\n" for line in capture.get().splitlines())


def _said(run: MeasuredRun) -> str:
    return f"{run.num_steps} steps, {format_ns(run.low_ns)} to {format_ns(run.high_ns)}"


def _verdict(found: Comparison) -> str:
    low, high = found.gain_interval_pct
    if found.is_told_apart:
        gain = f"The gain lies between {low:+.1f} and {high:+.1f} %."
    else:
        gain = f"The steps' own noise hides any gain ({low:+.1f} to {high:+.1f} %)."
    if found.error_pct is None:
        return gain
    came = "came true" if found.came_true else "did not come true"
    return f"{gain} The prediction {came}: {found.error_pct:+.1f} % off."
