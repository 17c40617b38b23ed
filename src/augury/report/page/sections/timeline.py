"""The timeline of a page: the packed lanes, and its longest critical segments as a table."""

from __future__ import annotations

from dataclasses import dataclass

from augury.core.run_page import RunPage
from augury.report.page.sections.summary import look_of_kind, path_tables
from augury.report.page.tables import (
    Cell,
    Column,
    Section,
    TableView,
    longest_of,
    name_cell,
    ns_cell,
    percent_cell,
    rank_cell,
    stacked,
)
from augury.report.page.timeline.pack import PackedTimeline, pack_timeline
from augury.report.selection import merged_segments

MAX_SEGMENTS = 200


@dataclass(frozen=True, kw_only=True)
class TimelineContent:
    packed: PackedTimeline
    has_measured: bool
    tables: list[TableView]


def timeline_section(page: RunPage) -> Section:
    packed = pack_timeline(page)
    tables = [_segments(page)]
    if page.diagnosis is not None and page.diagnosis.waterfall:
        tables += path_tables(page.replay)
    content = TimelineContent(packed=packed, has_measured=page.trace is not None, tables=tables)
    return Section(
        id="timeline",
        title="Timeline",
        template="timeline.html",
        content=content,
        tables=tables,
        packed=packed.text,
    )


def _segments(page: RunPage) -> TableView:
    """The critical path in words: what a reader who cannot see the timeline needs of it."""
    merged = merged_segments(page.replay.critical_path)
    whole = max(1, page.replay.critical_path_summary.dur_ns)
    chosen = sorted(merged, key=lambda one: -one.dur_ns)[:MAX_SEGMENTS]
    top = max((one.dur_ns for one in chosen), default=1)
    rows = []
    for one in chosen:
        first, last = one.first, one.last
        names = first.name if one.num_ops == 1 else f"{first.name} ... {last.name}"
        rows.append(
            [
                ns_cell(first.start_ns),
                ns_cell(one.dur_ns),
                percent_cell(100 * one.dur_ns / whole),
                stacked([(look_of_kind(first.kind), one.dur_ns)], top),
                rank_cell(first.rank),
                name_cell(first.resource),
                Cell(first.kind.replace("_", "-")),
                name_cell(names),
                Cell(str(one.num_ops), one.num_ops),
            ]
        )
    return TableView(
        id="segment-table",
        caption="The critical path: its longest segments",
        columns=[
            Column("start", is_number=True),
            Column("duration", is_number=True),
            Column("share", is_number=True),
            Column("", is_bar=True),
            Column("rank", is_number=True),
            Column("stream or link"),
            Column("kind", is_short=True),
            Column("operations"),
            Column("number", is_number=True),
        ],
        rows=rows,
        shown=12,
        note=longest_of(len(rows), len(merged), "segments"),
    )
