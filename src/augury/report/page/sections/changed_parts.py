"""Parts of the step that changed between two runs: phases, kinds, layers and operations."""

from __future__ import annotations

from augury.core.results.comparison import Comparison, PartChange
from augury.report.page.tables import (
    Bar,
    Cell,
    Column,
    Section,
    TableContent,
    TableView,
    name_cell,
    ns_cell,
    signed_ns_cell,
    table_section,
)


def part_sections(found: Comparison) -> list[Section]:
    """One section for each list of changes that is not empty."""
    parts = (
        (
            "phase",
            "Phases",
            "Time per step on the main thread, with the gaps between phases; in timing windows.",
            found.phase_changes,
        ),
        (
            "kind",
            "Kinds",
            "Time per step by kind of operation, on all streams; in timing windows.",
            found.kind_changes,
        ),
        (
            "layer",
            "Layers",
            "Time per step by layer; in detailed windows, which are slower in both runs.",
            found.layer_changes,
        ),
        (
            "operation",
            "Operations",
            "Time per step by name of the operation; in detailed windows, which are slower in both"
            " runs.",
            found.operation_changes,
        ),
    )
    return [
        _section(noun, title, about, changes) for noun, title, about, changes in parts if changes
    ]


def _section(noun: str, title: str, about: str, changes: list[PartChange]) -> Section:
    most = max(1, *(abs(one.change_ns) for one in changes))
    table = TableView(
        id=f"{noun}-table",
        caption=f"Largest changes by {noun}",
        columns=[
            Column(noun),
            Column("before", is_number=True),
            Column("after", is_number=True),
            Column("change", is_number=True),
            Column("relative", is_number=True),
            Column("shorter or longer", is_bar=True),
            Column("certain", is_short=True, hint="the change exceeds the noise and 3 %"),
        ],
        rows=[_row(one, most) for one in changes],
    )
    key = [("after", "shorter"), ("added", "longer"), ("unexplained", "within noise")]
    return table_section(f"{noun}s", title, TableContent(about=about, table=table, key=key))


def _row(one: PartChange, most_ns: int) -> list[Cell]:
    change_ns = one.change_ns
    width = round(50 * abs(change_ns) / most_ns, 3)
    look = "unexplained" if not one.is_certain else "added" if change_ns > 0 else "after"
    relative = (
        Cell("new", 1e9)
        if one.change_pct is None
        else Cell(f"{one.change_pct:+.1f} %", one.change_pct)
    )
    return [
        name_cell(one.name),
        ns_cell(one.before_ns),
        ns_cell(one.after_ns),
        signed_ns_cell(change_ns),
        relative,
        Cell("", change_ns, (Bar(look, 50 if change_ns > 0 else 50 - width, width),)),
        Cell("yes" if one.is_certain else "no"),
    ]
