"""Parallel strategies by number of devices: time, efficiency and memory, as tables and charts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from augury.core.results.oracle import OracleResult, OracleRow, Recommendation
from augury.core.units import NS_PER_S
from augury.report.oracle import find_row, time_words, with_axes
from augury.report.page.tables import (
    Cell,
    Column,
    Section,
    TableContent,
    TableView,
    bytes_cell,
    count_cell,
    name_cell,
    percent_cell,
    stacked,
    table_section,
)
from augury.report.safe_text import safe

INFEASIBLE = Cell("-", 1e30)


def metric_sections(result: OracleResult) -> list[Section]:
    """Time per step, scaling efficiency and memory, each as a chart and a table."""
    how = "Replayed" if any(row.fidelity == "replay" for row in result.rows) else "In closed form"
    return [
        _metric_section(
            result,
            ("step-time", "Time per step"),
            f"{how}, for the global batch of each number of devices. Both axes are logarithmic."
            " A dash stands for an infeasible configuration.",
            lambda row: row.step_s * NS_PER_S,
            lambda row: _seconds(row.step_s),
            {"unit": "ns", "isLog": True},
        ),
        _metric_section(
            result,
            ("efficiency", "Efficiency"),
            "Speed relative to devices with evenly divided compute and no communication.",
            lambda row: row.efficiency_pct,
            lambda row: percent_cell(row.efficiency_pct),
            {"unit": "%"},
        ),
        _metric_section(
            result,
            ("memory", "Memory"),
            "Memory of the fullest device. A strategy that needs more than the limit is"
            " infeasible.",
            lambda row: row.memory_bytes,
            lambda row: bytes_cell(row.memory_bytes),
            {"unit": "bytes", "isLog": True},
            limit=("memory of a device", result.memory_limit_bytes),
        ),
    ]


def _metric_section(
    result: OracleResult,
    names: tuple[str, str],
    about: str,
    value: Callable[[OracleRow], float],
    cell: Callable[[OracleRow], Cell],
    look: dict[str, Any],
    *,
    limit: tuple[str, float] | None = None,
) -> Section:
    section_id, title = names
    numbers = sorted({row.devices for row in result.rows})
    strategies = list(dict.fromkeys(row.strategy for row in result.rows))
    rows = {(row.strategy, row.devices): row for row in result.rows if row.feasible}
    series = [
        {
            "label": safe(name),
            "y": [
                value(rows[name, number]) if (name, number) in rows else None for number in numbers
            ],
        }
        for name in strategies
        if any((name, number) in rows for number in numbers)
    ]
    if limit is not None and series:
        series.append({"label": limit[0], "y": [limit[1]] * len(numbers)})
    table = TableView(
        id=f"{section_id}-table",
        caption=f"{title} by strategy and number of devices",
        columns=[
            Column("strategy", is_short=True),
            *(Column(f"{number:,}", is_number=True) for number in numbers),
        ],
        rows=[
            [
                name_cell(name),
                *(
                    cell(rows[name, number]) if (name, number) in rows else INFEASIBLE
                    for number in numbers
                ),
            ]
            for name in strategies
        ],
        shown=40,
    )
    chart = f"{section_id}-chart"
    drawn = {"title": title, "xName": "devices", "isLine": True, "x": numbers, "series": series}
    content = TableContent(about=about, table=table, chart=chart if series else "")
    return table_section(section_id, title, content, **({chart: drawn | look} if series else {}))


def fastest_table(result: OracleResult) -> TableView:
    """The fastest strategy for each number of devices."""
    has_epoch = any(row.epoch_s is not None for row in result.rows)
    has_cost = any(row.cost_per_epoch is not None for row in result.rows)
    return TableView(
        id="fastest-table",
        caption="Fastest strategy for each number of devices",
        columns=[
            Column("devices", is_number=True),
            Column("strategy", is_short=True),
            Column("step", is_number=True),
            Column("samples per second", is_number=True),
            Column("efficiency", is_number=True),
            Column("memory", is_number=True),
            *([Column("epoch", is_number=True)] if has_epoch else []),
            *([Column("cost of an epoch", is_number=True)] if has_cost else []),
            Column("bottleneck"),
            Column("margin", is_number=True, hint="lead over the next strategy"),
            Column("confidence", is_number=True, hint="probability of that order"),
        ],
        rows=[
            _fastest(one, row, has_epoch=has_epoch, has_cost=has_cost)
            for one in result.fastest
            if (row := find_row(result, one.strategy, one.devices)) is not None
        ],
        shown=40,
    )


def _fastest(one: Recommendation, row: OracleRow, *, has_epoch: bool, has_cost: bool) -> list[Cell]:
    cost = row.cost_per_epoch
    return [
        count_cell(one.devices),
        name_cell(with_axes(row)),
        _seconds(row.step_s),
        Cell(f"{one.samples_per_s:,.0f}", one.samples_per_s),
        percent_cell(row.efficiency_pct),
        bytes_cell(row.memory_bytes),
        *([_seconds(row.epoch_s)] if has_epoch else []),
        *([Cell("" if cost is None else f"{cost:,.2f}", cost or -1.0)] if has_cost else []),
        name_cell(row.bottleneck),
        percent_cell(one.margin_pct),
        percent_cell(one.confidence_pct),
    ]


def strategy_section(result: OracleResult) -> Section | None:
    """All feasible configurations with the parts of their steps."""
    rows = [row for row in result.rows if row.feasible]
    if not rows:
        return None
    table = TableView(
        id="strategy-table",
        caption="Feasible configurations",
        columns=[
            Column("devices", is_number=True),
            Column("strategy", is_short=True),
            Column("global batch", is_number=True),
            Column("step", is_number=True),
            Column("90 % interval", is_short=True),
            Column("compute", is_number=True),
            Column("exposed communication", is_number=True),
            Column("share of the step", is_bar=True),
            Column("memory", is_number=True),
            Column("bottleneck"),
        ],
        rows=[_configuration(row) for row in sorted(rows, key=lambda row: row.devices)],
    )
    content = TableContent(
        about="Compute and exposed communication of each configuration; the rest of a step is"
        " waiting, as in the bubbles of a pipeline.",
        table=table,
        key=[("compute", "compute"), ("communication", "exposed communication")],
    )
    return table_section("strategies", "Configurations", content)


def _configuration(row: OracleRow) -> list[Cell]:
    low, high = row.interval_s
    parts = [("compute", row.compute_s), ("communication", row.exposed_comm_s)]
    return [
        count_cell(row.devices),
        name_cell(with_axes(row)),
        count_cell(row.global_batch),
        _seconds(row.step_s),
        Cell(f"{time_words(low)} to {time_words(high)}", low),
        _seconds(row.compute_s),
        _seconds(row.exposed_comm_s),
        stacked(parts, row.step_s),
        bytes_cell(row.memory_bytes),
        name_cell(row.bottleneck),
    ]


def _seconds(value_s: float | None) -> Cell:
    return Cell("", -1.0) if value_s is None else Cell(time_words(value_s), value_s)
