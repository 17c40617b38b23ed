"""Choices for a faster step: the what-if table, and communication policies with their curves."""

from __future__ import annotations

from typing import Any

import numpy as np

from augury.core.results.schedule import Curve, PolicyResult, ScheduleResult
from augury.core.run_page import RunPage
from augury.core.units import format_ns, format_percent
from augury.report.page.breakdowns import TableContent, table_section
from augury.report.page.tables import (
    Bar,
    Cell,
    Column,
    Section,
    TableView,
    count_cell,
    name_cell,
    ns_cell,
    percent_cell,
)
from augury.report.phrases import gain_words
from augury.report.safe_text import safe

MAX_POINTS = 300


def what_if_section(page: RunPage) -> Section | None:
    if not page.what_ifs:
        return None
    now_ns = page.replay.predicted_step_ns
    longest = max([now_ns, *(one.predicted_step_ns or 0 for one in page.what_ifs)], default=1)
    rows = [
        [
            Cell("as recorded"),
            ns_cell(now_ns),
            Cell(""),
            Cell(""),
            _bar(now_ns, longest, "total"),
            Cell(""),
        ]
    ]
    for one in page.what_ifs:
        if one.predicted_step_ns is None:
            trouble = Cell(f"cannot be predicted: {safe(one.trouble or '')}")
            rows.append(
                [
                    Cell(one.change),
                    Cell("", -1),
                    Cell("", -1e9),
                    trouble,
                    Cell(""),
                    Cell(one.option),
                ]
            )
            continue
        gain = one.gain_pct or 0.0
        interval = ""
        if one.interval_ns is not None:
            low, high = one.interval_ns
            interval = f"{format_ns(low)} to {format_ns(high)}"
        rows.append(
            [
                Cell(one.change),
                ns_cell(one.predicted_step_ns),
                Cell(gain_words(gain), gain),
                Cell(interval),
                _bar(one.predicted_step_ns, longest, "after" if gain >= 0 else "added"),
                Cell(one.option),
            ]
        )
    table = TableView(
        id="what-if-table",
        caption="Predicted step after usual changes",
        columns=[
            Column("change"),
            Column("step", is_number=True),
            Column("gain", is_number=True),
            Column("90 % interval", is_short=True),
            Column("", is_bar=True),
            Column("option of augury whatif"),
        ],
        rows=rows,
    )
    about = "Each change alone, predicted by replay. `augury whatif` predicts others."
    return table_section(
        "what-if", "What if", TableContent(about=about.replace("`", ""), table=table)
    )


def _bar(value: float, whole: float, look: str) -> Cell:
    return Cell("", value, (Bar(look, 0, round(100 * value / max(1, whole), 3)),))


def policy_section(page: RunPage) -> Section | None:
    schedule = page.schedule
    if schedule is None:
        return None
    longest = max([one.step_ns for one in schedule.policies] + [schedule.baseline_step_ns, 1])
    table = TableView(
        id="policy-table",
        caption="Communication policies on this run",
        columns=[
            Column("policy", is_short=True),
            Column("step", is_number=True),
            Column("gain", is_number=True),
            Column("exposed communication", is_number=True),
            Column("link use", is_number=True),
            Column("above the bound", is_number=True),
            Column("pieces", is_number=True),
            Column("", is_bar=True),
            Column("note"),
        ],
        rows=[_policy(one, schedule, longest) for one in schedule.policies],
    )
    verdict = (
        f"The best order is {safe(schedule.best)}; a plan can pay off."
        if schedule.can_pay
        else "No plan pays off: possible gains are within the noise or below the stock order."
    )
    about = (
        f"{verdict} No order is faster than the bound, {format_ns(schedule.bound_ns)};"
        f" gains are relative to {safe(schedule.baseline)},"
        f" {format_ns(schedule.baseline_step_ns)}. Gains below"
        f" {format_percent(schedule.noise_pct)} are within the run's own variation."
    )
    content = TableContent(about=about, table=table, chart="policy-chart")
    return table_section("policies", "Policies", content, **{"policy-chart": _chart(schedule)})


def _policy(one: PolicyResult, schedule: ScheduleResult, longest: int) -> list[Cell]:
    notes = [
        *(["best"] if one.policy == schedule.best else []),
        *(["stock DDP can follow it"] if one.is_stock_ddp else []),
        *([f"not replayed: {safe(one.trouble)}"] if one.trouble else []),
    ]
    return [
        name_cell(one.policy),
        ns_cell(one.step_ns),
        Cell(gain_words(one.gain_pct), one.gain_pct),
        ns_cell(one.waiting_ns),
        percent_cell(one.link_use_pct),
        percent_cell(one.gap_pct),
        count_cell(one.num_pieces),
        _bar(one.step_ns, longest, "after" if one.gain_pct >= 0 else "added"),
        Cell("; ".join(notes)),
    ]


def _chart(schedule: ScheduleResult) -> dict[str, Any]:
    """Bytes that backward has released, and those that have arrived under each policy."""
    end_ns = max([one.evaluated_step_ns for one in schedule.policies] + [1])
    curves = [("released", schedule.released)]
    curves += [(one.policy, one.transferred) for one in schedule.policies]
    every = np.concatenate([[0, end_ns], *([at for at, _ in curve] for _, curve in curves)])
    grid, _ = np.unique(np.clip(every.astype(np.int64), 0, end_ns), return_counts=True)
    if len(grid) > MAX_POINTS:
        grid = np.rint(np.linspace(0, end_ns, MAX_POINTS)).astype(np.int64)
    return {
        "title": "Gradients released by backward, and arrived, since the start of backward",
        "unit": "bytes",
        "x": grid.tolist(),
        "series": [{"label": safe(name), "y": _levels(curve, grid)} for name, curve in curves],
    }


def _levels(curve: Curve, grid: Any) -> list[int]:
    if not curve:
        return [0] * len(grid)
    at_ns, held = np.array(curve, dtype=np.int64).T
    before = np.searchsorted(at_ns, grid, side="right") - 1
    return [int(value) for value in np.where(before >= 0, held[np.maximum(before, 0)], 0)]
