"""Strategies that the oracle refuses, with the reason."""

from __future__ import annotations

from augury.core.results.oracle import OracleResult
from augury.report.oracle import refusals
from augury.report.page.tables import (
    Cell,
    Column,
    Section,
    TableContent,
    TableView,
    name_cell,
    table_section,
)


def infeasible_section(result: OracleResult) -> Section | None:
    refused = refusals(result)
    if not refused:
        return None
    table = TableView(
        id="infeasible-table",
        caption="Infeasible strategies",
        columns=[
            Column("strategy", is_short=True),
            Column("devices", is_short=True),
            Column("reason"),
        ],
        rows=[[name_cell(name), Cell(span), Cell(why)] for name, span, why in refused],
    )
    about = "Reasons that differ only in their figures appear once, with those of the first row."
    return table_section("infeasible", "Infeasible", TableContent(about=about, table=table))
