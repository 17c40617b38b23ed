"""Communication policies, with the gradients released and arrived under each of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from augury.core.results.schedule import Curve, PolicyResult, ScheduleResult
from augury.core.units import format_ns, format_percent
from augury.report.page.tables import (
    Cell,
    Column,
    Section,
    TableContent,
    TableView,
    count_cell,
    interval_cell,
    name_cell,
    ns_cell,
    percent_cell,
    single_bar,
    table_section,
)
from augury.report.phrases import gain_words
from augury.report.safe_text import safe

MAX_POINTS = 300


def policy_section(schedule: ScheduleResult) -> Section:
    longest = max([one.step_ns for one in schedule.policies] + [schedule.baseline_step_ns, 1])
    table = TableView(
        id="policy-table",
        caption="Communication policies on this run",
        columns=[
            Column("policy", is_short=True),
            Column("step", is_number=True),
            Column("90 % interval", is_short=True),
            Column("gain", is_number=True),
            Column("exposed communication", is_number=True),
            Column("link use", is_number=True),
            Column("compute use", is_number=True),
            Column("above the bound", is_number=True),
            Column("pieces", is_number=True),
            Column("", is_bar=True),
            Column(
                "note", hint="stock DDP: it can follow this order, given a list of bucket sizes"
            ),
        ],
        rows=[_policy(one, schedule, longest) for one in schedule.policies],
    )
    verdict = (
        f"The best order is {safe(schedule.best)}; a plan can pay off."
        if schedule.can_pay
        else "No plan pays off: possible gains are within the noise or below the stock order."
    )
    about = (
        f"{verdict} The estimated lower bound for any order is {format_ns(schedule.bound_ns)};"
        f" gains are relative to {safe(schedule.baseline)},"
        f" {format_ns(schedule.baseline_step_ns)}. Gains below"
        f" {format_percent(schedule.noise_pct)} are within the run's own variation."
    )
    content = TableContent(about=about, table=table, chart="policy-chart")
    return table_section("policies", "Policies", content, **{"policy-chart": _chart(schedule)})


def _policy(one: PolicyResult, schedule: ScheduleResult, longest: int) -> list[Cell]:
    notes = [
        *(["best"] if one.policy == schedule.best else []),
        *(["stock DDP"] if one.is_stock_ddp else []),
        *([f"not replayed: {safe(one.trouble)}"] if one.trouble else []),
    ]
    return [
        name_cell(one.policy),
        ns_cell(one.step_ns),
        interval_cell(one.interval_ns),
        Cell(gain_words(one.gain_pct), one.gain_pct),
        ns_cell(one.waiting_ns),
        percent_cell(one.link_use_pct),
        percent_cell(one.device_use_pct),
        percent_cell(one.gap_pct),
        count_cell(one.num_pieces),
        single_bar(one.step_ns, longest, "after" if one.gain_pct >= 0 else "added"),
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
