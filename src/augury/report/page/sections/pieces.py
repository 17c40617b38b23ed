"""Pieces of an order of gradients: released by backward, transferred, needed by forward."""

from __future__ import annotations

from augury.core.results.schedule import PieceResult, ScheduleResult
from augury.report.page.tables import (
    Bar,
    Cell,
    Column,
    Section,
    TableContent,
    TableView,
    bytes_cell,
    count_cell,
    name_cell,
    ns_cell,
    table_section,
)
from augury.report.safe_text import safe

MAX_PIECES = 2_000
MARK_PCT = 0.4
"""Width of the marks of release and need."""


def piece_section(schedule: ScheduleResult) -> Section | None:
    pieces = schedule.pieces[:MAX_PIECES]
    if not pieces:
        return None
    latest = (max(one.arrive_ns, one.need_ns) for one in pieces)
    scale = 100 / max(1, schedule.backward_ns, *latest)
    table = TableView(
        id="piece-table",
        caption=f"Pieces of {safe(schedule.best)}, in the order in which they are sent",
        columns=[
            Column("piece", is_number=True),
            Column("size", is_number=True),
            Column("from gradient"),
            Column("slices", is_number=True),
            Column("released", is_number=True, hint="backward has produced the last gradient"),
            Column("start", is_number=True),
            Column("arrival", is_number=True),
            Column("needed", is_number=True, hint="by a forward that never waits"),
            Column("since the start of backward", is_bar=True),
        ],
        rows=[_piece(number, one, scale) for number, one in enumerate(pieces, 1)],
        note=f"The first {MAX_PIECES:,} of {len(schedule.pieces):,} pieces."
        if len(schedule.pieces) > MAX_PIECES
        else "",
    )
    content = TableContent(
        about="One row for each message of the best order, with times since the start of backward."
        " A piece that arrives after it is needed makes forward wait.",
        table=table,
        key=[
            ("other", "waits for its turn"),
            ("communication", "transfer"),
            ("total", "released"),
            ("after", "needed"),
        ],
    )
    return table_section("pieces", "Pieces", content)


def _piece(number: int, one: PieceResult, scale: float) -> list[Cell]:
    spans = (
        Bar("other", one.release_ns * scale, max(0, one.start_ns - one.release_ns) * scale),
        Bar("communication", one.start_ns * scale, max(0, one.arrive_ns - one.start_ns) * scale),
        Bar("total", one.release_ns * scale, MARK_PCT),
        Bar("after", min(one.need_ns * scale, 100 - MARK_PCT), MARK_PCT),
    )
    return [
        count_cell(number),
        bytes_cell(one.size_bytes),
        name_cell(one.first_gradient),
        count_cell(one.num_slices),
        ns_cell(one.release_ns),
        ns_cell(one.start_ns),
        ns_cell(one.arrive_ns),
        ns_cell(one.need_ns),
        Cell("", one.start_ns, tuple(_rounded(bar) for bar in spans)),
    ]


def _rounded(bar: Bar) -> Bar:
    return Bar(bar.look, round(bar.start_pct, 3), round(bar.width_pct, 3))
