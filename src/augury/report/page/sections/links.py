"""Utilization of communication streams and links, and recorded traffic between ranks."""

from __future__ import annotations

from typing import Any

from augury.core.results.breakdown import LinkBreakdown
from augury.core.results.wire import WireResult
from augury.core.run_page import RunPage
from augury.core.units import format_percent
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
    percent_cell,
    rank_cell,
    rate_cell,
    stacked,
    table_section,
)
from augury.report.selection import alike, spans

MAX_CHARTED_LINKS = 8


def link_section(page: RunPage) -> Section | None:
    links = page.breakdown.links
    if not links and page.wire is None:
        return None
    num = page.breakdown.num_links
    table = TableView(
        id="link-table",
        caption="Utilization of communication streams and links over the replayed window",
        columns=[
            Column("rank", is_number=True),
            Column("link or stream"),
            Column("busy", is_number=True),
            Column("waiting", is_number=True, hint="held for ranks that have not arrived"),
            Column("busy and waiting", is_bar=True),
            Column("busiest slice", is_number=True, hint="the window has 48 equal slices"),
        ],
        rows=[
            [
                rank_cell(one.rank),
                name_cell(one.name),
                percent_cell(one.busy_pct),
                percent_cell(one.waiting_pct),
                stacked([("communication", one.busy_pct), ("waiting", one.waiting_pct)], 100),
                percent_cell(max(one.over_window_pct, default=0.0)),
            ]
            for one in links
        ],
        note=f"The {len(links):,} busiest of {num:,} streams and links."
        if len(links) < num
        else "",
    )
    content = TableContent(
        about="Busy: data moves. Waiting: a collective holds the stream until the last rank has"
        " arrived.",
        table=table,
        key=[("communication", "busy"), ("waiting", "waiting")],
        chart="link-chart" if links else "",
        more=[_wire_table(page.wire)] if page.wire is not None else [],
    )
    chart = _link_chart(links, page.timeline.makespan_ns)
    return table_section("links", "Links", content, **({"link-chart": chart} if links else {}))


def _link_chart(links: list[LinkBreakdown], end_ns: int) -> dict[str, Any]:
    """Links with equal curves share one, which names all their ranks."""
    slices = max((len(one.over_window_pct) for one in links), default=1)
    at_ns = [round(end_ns * i / slices) for i in range(slices + 1)]
    groups = alike(links, lambda one: (one.name, tuple(one.over_window_pct)))
    return {
        "title": "Utilization over the window",
        "unit": "%",
        "x": at_ns,
        "series": [
            {
                "label": f"{_ranks_of(group.members)}, {name_cell(group.first.name).text}",
                "y": [*group.first.over_window_pct, *group.first.over_window_pct[-1:]],
            }
            for group in groups[:MAX_CHARTED_LINKS]
        ],
    }


def _ranks_of(links: list[LinkBreakdown]) -> str:
    ranks = [one.rank for one in links if one.rank is not None]
    if not ranks:
        return "shared"
    return f"rank{'s' if len(ranks) > 1 else ''} {spans(ranks)}"


def _wire_table(wire: WireResult) -> TableView:
    return TableView(
        id="wire-table",
        caption="Recorded TCP traffic between ranks",
        columns=[
            Column("from", is_number=True),
            Column("to", is_number=True),
            Column("messages", is_number=True),
            Column("bytes", is_number=True),
            Column("rate", is_number=True, hint="median of large messages"),
            Column("shortest delay", is_number=True),
            Column("use over a step", is_bar=True),
        ],
        rows=[
            [
                count_cell(one.src),
                count_cell(one.dst),
                count_cell(one.num_messages),
                bytes_cell(one.size_bytes),
                rate_cell(one.rate_bytes_per_s),
                ns_cell(one.shortest_delay_ns),
                _profile(one.use_over_step_pct),
            ]
            for one in wire.links
        ],
        note=f"{format_percent(wire.attributed_pct)} of the bytes are attributed to collectives.",
    )


def _profile(shares_pct: list[float]) -> Cell:
    """Slices of a step next to each other, the busier the darker."""
    width = 100 / max(1, len(shares_pct))
    bars = tuple(
        Bar(f"level-{min(4, int(share // 20))}", round(i * width, 3), round(width, 3))
        for i, share in enumerate(shares_pct)
        if share > 0
    )
    return Cell("", sum(shares_pct), bars)
