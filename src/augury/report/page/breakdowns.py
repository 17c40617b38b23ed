"""Breakdowns of a run as tables: by rank, layer and collective, and the utilization of links."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from augury.core.results.breakdown import CollectiveBreakdown, CollectiveTimes, LinkBreakdown
from augury.core.results.wire import WireResult
from augury.core.run_page import RunPage
from augury.core.units import format_percent
from augury.report.page.tables import (
    Bar,
    Cell,
    Column,
    Section,
    TableView,
    bytes_cell,
    count_cell,
    name_cell,
    ns_cell,
    percent_cell,
    rate_cell,
    stacked,
)
from augury.report.selection import alike, spans

MAX_CHARTED_LINKS = 8
MAX_RANK_ROWS = 4_096
SHOWN_RANKS = 20


@dataclass(frozen=True, kw_only=True)
class TableContent:
    """A table with words before it, a key of its colours, and a chart."""

    about: str
    table: TableView
    key: list[tuple[str, str]] = field(default_factory=list)
    chart: str = ""
    more: list[TableView] = field(default_factory=list)


def table_section(section_id: str, title: str, content: TableContent, **charts: Any) -> Section:
    return Section(
        id=section_id,
        title=title,
        template="table_section.html",
        content=content,
        tables=[content.table, *content.more],
        charts=charts,
    )


def rank_section(page: RunPage) -> Section | None:
    ranks = page.breakdown.ranks
    if not ranks:
        return None
    results = {one.rank: one for one in page.replay.ranks}
    longest_ns = max(one.step_ns for one in ranks)
    has_host = any(one.host_ns for one in ranks)
    rows = []
    if len(ranks) > SHOWN_RANKS:
        ranks = sorted(ranks, key=lambda one: -(one.compute_ns + one.host_ns))
    for one in ranks[:MAX_RANK_ROWS]:
        result = results[one.rank]
        parts = [
            ("compute", one.compute_ns),
            ("communication", one.exposed_transfer_ns),
            ("waiting", one.exposed_waiting_ns),
            *([("launch", one.host_ns)] if has_host else []),
            ("idle", one.idle_ns),
        ]
        rows.append(
            [
                Cell(str(one.rank), one.rank),
                name_cell(result.host),
                ns_cell(result.measured_step_ns),
                ns_cell(result.predicted_step_ns),
                *(ns_cell(value) for _, value in parts),
                stacked(parts, longest_ns),
                bytes_cell(result.peak_memory_bytes),
            ]
        )
    table = TableView(
        id="rank-table",
        caption="Step of each rank by what it does",
        columns=[
            Column("rank", is_number=True),
            Column("host"),
            Column("measured step", is_number=True),
            Column("replayed step", is_number=True),
            Column("compute", is_number=True),
            Column("transfer", is_number=True, hint="communication that no compute hides"),
            Column("waiting", is_number=True, hint="for other ranks, not hidden by compute"),
            *([Column("host only", is_number=True)] if has_host else []),
            Column("idle", is_number=True, hint="no recorded operation runs"),
            Column("share of the step", is_bar=True),
            Column("peak memory", is_number=True),
        ],
        rows=rows,
        shown=SHOWN_RANKS,
        note="Ranks that work longest come first." if len(ranks) > SHOWN_RANKS else "",
    )
    return table_section(
        "ranks",
        "Ranks",
        TableContent(
            about="Replayed time per step. Communication counts only where no compute hides it:"
            " transfer, and waiting for the last rank to arrive.",
            table=table,
            key=[
                ("compute", "compute"),
                ("communication", "exposed transfer"),
                ("waiting", "exposed waiting"),
                *([("launch", "host only")] if has_host else []),
                ("idle", "idle or unexplained"),
            ],
        ),
    )


def layer_section(page: RunPage) -> Section | None:
    layers = page.breakdown.layers
    if not layers:
        return None
    rows = []
    kinds = ("forward", "backward", "update", "other", "communication")
    totals = [sum(getattr(one, f"{kind}_ns") for kind in kinds) for one in layers]
    used = [kind for kind in kinds if any(getattr(one, f"{kind}_ns") for one in layers)]
    sizes = any(one.size_bytes for one in layers)
    for one, total_ns in zip(layers, totals, strict=True):
        parts = [(kind, getattr(one, f"{kind}_ns")) for kind in used]
        rows.append(
            [
                name_cell(one.layer),
                ns_cell(total_ns),
                *(ns_cell(value) for _, value in parts),
                stacked(parts, max(totals)),
                ns_cell(one.critical_ns),
                *([bytes_cell(one.size_bytes)] if sizes else []),
                count_cell(one.num_ranks),
            ]
        )
    num = page.breakdown.num_layers
    table = TableView(
        id="layer-table",
        caption="Time of each layer",
        columns=[
            Column("layer"),
            Column("total", is_number=True),
            *(Column(kind, is_number=True) for kind in used),
            Column("share", is_bar=True),
            Column("on critical path", is_number=True),
            *([Column("communicated", is_number=True)] if sizes else []),
            Column("ranks", is_number=True),
        ],
        rows=rows,
        note=f"The {len(rows):,} longest of {num:,} layers." if len(rows) < num else "",
    )
    return table_section(
        "layers",
        "Layers",
        TableContent(
            about="Replayed time per step, as the mean over the ranks that have the layer. Work"
            " that the recording assigns to no layer is not listed.",
            table=table,
            key=[(kind, kind) for kind in used],
        ),
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
    num = page.breakdown.num_collectives
    table = TableView(
        id="collective-table",
        caption="Collectives and messages by kind, size and number of ranks",
        columns=columns,
        rows=rows,
        note=f"The {len(rows):,} longest of {num:,} kinds and sizes." if len(rows) < num else "",
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
                Cell("shared", -1) if one.rank is None else Cell(str(one.rank), one.rank),
                name_cell(one.name),
                percent_cell(one.busy_pct),
                percent_cell(one.waiting_pct),
                stacked([("communication", one.busy_pct), ("waiting", one.waiting_pct)], 100),
                percent_cell(max(one.over_window_pct, default=0.0)),
            ]
            for one in links
        ],
        note=f"The {len(links):,} busiest of {num:,}." if len(links) < num else "",
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
