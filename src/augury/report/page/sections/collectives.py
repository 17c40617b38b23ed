"""Collectives by kind, size and number of ranks: waiting, transfer and bus bandwidth."""

from __future__ import annotations

from augury.core.results.breakdown import CollectiveBreakdown, CollectiveTimes
from augury.core.run_page import RunPage
from augury.report.page.tables import (
    Cell,
    Column,
    Section,
    TableContent,
    TableView,
    bytes_cell,
    count_cell,
    longest_of,
    name_cell,
    ns_cell,
    rate_cell,
    stacked,
    table_section,
)


def collective_section(page: RunPage) -> Section | None:
    found = page.breakdown.collectives
    if not found:
        return None
    has_measured = any(one.measured for one in found)
    longest_ns = max(_total_ns(one) for one in found)
    columns = [
        Column("kind", is_short=True),
        Column("size", is_number=True),
        Column("ranks", is_number=True),
        Column("per step", is_number=True),
    ]
    for source in (*(["measured"] if has_measured else []), "replayed"):
        columns += [
            Column(f"waiting, {source}", is_number=True),
            Column(f"transfer, {source}", is_number=True),
            Column(f"bus bandwidth, {source}", is_number=True),
        ]
    columns.append(Column("waiting and transfer", is_bar=True))
    rows = []
    for one in found:
        row = [
            name_cell(one.kind.replace("_", "-")),
            bytes_cell(one.size_bytes),
            count_cell(one.num_ranks),
            count_cell(one.per_step),
        ]
        for times in (*([one.measured] if has_measured else []), one.replayed):
            row += _time_cells(times)
        times = one.replayed or one.measured
        parts = (
            [("waiting", times.waiting_ns), ("communication", times.transfer_ns)] if times else []
        )
        row.append(stacked(parts, longest_ns))
        rows.append(row)
    table = TableView(
        id="collective-table",
        caption="Collectives and messages by kind, size and number of ranks",
        columns=columns,
        rows=rows,
        note=longest_of(len(rows), page.breakdown.num_collectives, "kinds and sizes"),
    )
    return table_section(
        "collectives",
        "Collectives",
        TableContent(
            about="Mean over ranks. Waiting ends when the last rank has arrived; transfer is the"
            " time from then on. Bus bandwidth: bytes that pass each rank's link per second of"
            " transfer.",
            table=table,
            key=[("waiting", "waiting for the last rank"), ("communication", "transfer")],
        ),
    )


def _time_cells(times: CollectiveTimes | None) -> list[Cell]:
    if times is None:
        return [ns_cell(None), ns_cell(None), rate_cell(None)]
    return [
        ns_cell(times.waiting_ns),
        ns_cell(times.transfer_ns),
        rate_cell(times.bus_bandwidth_bytes_per_s),
    ]


def _total_ns(one: CollectiveBreakdown) -> int:
    times = one.replayed or one.measured
    return times.waiting_ns + times.transfer_ns if times else 0
