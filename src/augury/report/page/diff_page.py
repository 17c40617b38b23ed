"""The page about two runs: ``augury diff BEFORE AFTER --page diff.html``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from augury.core.results.comparison import Comparison, StepSeries
from augury.core.units import format_count, format_ns, format_percent
from augury.report.diff import verdict_lines
from augury.report.page.document import write_document
from augury.report.page.sections.changed_parts import part_sections
from augury.report.page.sections.step_durations import step_section
from augury.report.page.tables import (
    Cell,
    Column,
    KeyFigure,
    Section,
    SummaryContent,
    TableView,
    bar_with_interval,
    interval_cell,
    ns_cell,
    summary_of,
)
from augury.report.phrases import gain_words, interval_words
from augury.report.safe_text import safe


def write_diff_page(
    found: Comparison,
    steps: Sequence[tuple[StepSeries, StepSeries]],
    path: Path,
    *,
    names: tuple[str, str],
    force: bool = False,
) -> int:
    """Returns the size of the page in bytes. ``steps`` are those of each pair of runs."""
    sections = [_summary(found), step_section(steps), *part_sections(found)]
    return write_document(" and ".join(names), sections, path, force=force)


def _summary(found: Comparison) -> Section:
    first, *others = verdict_lines(found)
    return summary_of(
        SummaryContent(
            verdict=first, notes=others, figures=_figures(found), tables=[_before_after(found)]
        )
    )


def _figures(found: Comparison) -> list[KeyFigure]:
    low, high = found.gain_interval_pct
    figures = [
        KeyFigure(
            f"Measured step {when}",
            format_ns(run.step_ns),
            f"{interval_words((run.low_ns, run.high_ns))}, {format_count(run.num_steps, 'step')}",
        )
        for when, run in (("before", found.before), ("after", found.after))
    ]
    figures.append(
        KeyFigure(
            "Gain",
            gain_words(found.gain_pct),
            f"90 % interval {gain_words(low)} to {gain_words(high)}",
        )
    )
    if found.predicted_step_ns is not None and found.predicted_gain_pct is not None:
        policy = f", policy {safe(found.policy)}" if found.policy is not None else ""
        detail = f"step {format_ns(found.predicted_step_ns)}{policy}"
        figures.append(KeyFigure("Predicted gain", gain_words(found.predicted_gain_pct), detail))
    if found.error_pct is not None:
        detail = "predicted against measured step"
        figures.append(KeyFigure("Error", format_percent(found.error_pct, signed=True), detail))
    if found.machine_change_pct is not None:
        figures.append(
            KeyFigure(
                "Machine",
                format_percent(found.machine_change_pct, signed=True),
                "time of the same copy of memory",
            )
        )
    figures.append(KeyFigure("Ranks", f"{found.after.num_ranks:,}"))
    if found.num_pairs > 1:
        figures.append(KeyFigure("Pairs", f"{found.num_pairs:,}", "of alternating runs"))
    return figures


def _before_after(found: Comparison) -> TableView:
    rows = [("before", found.before.step_ns, (found.before.low_ns, found.before.high_ns), "total")]
    if found.predicted_step_ns is not None:
        step_ns = found.predicted_step_ns
        rows.append(
            ("predicted", step_ns, found.predicted_interval_ns or (step_ns, step_ns), "idle")
        )
    is_slower = found.after.step_ns > found.before.step_ns
    after = (found.after.low_ns, found.after.high_ns)
    rows.append(("after", found.after.step_ns, after, "added" if is_slower else "after"))
    scale = 100 / max(1, *(max(step_ns, interval[1]) for _, step_ns, interval, _ in rows))
    return TableView(
        id="before-after",
        caption="The measured step before and after, with its 90 % interval",
        columns=[
            Column("run"),
            Column("step", is_number=True),
            Column("90 % interval", is_short=True),
            Column("", is_bar=True),
        ],
        rows=[
            [
                Cell(name),
                ns_cell(step_ns),
                interval_cell(interval),
                bar_with_interval(look, step_ns, interval, scale),
            ]
            for name, step_ns, interval, look in rows
        ],
        can_sort=False,
    )
