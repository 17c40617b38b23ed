"""Summary of the page about a run: verdict, key figures, and the waterfall of the step."""

from __future__ import annotations

from augury.core.results.diagnosis import Diagnosis
from augury.core.results.replay import ReplayResult, Share
from augury.core.run_page import RunPage
from augury.core.units import format_bytes, format_count, format_ns, format_percent
from augury.report.page.tables import (
    Bar,
    Cell,
    Column,
    KeyFigure,
    Section,
    SummaryContent,
    TableView,
    name_cell,
    ns_cell,
    percent_cell,
    signed_ns_cell,
    single_bar,
    summary_of,
)
from augury.report.phrases import capitalized, interval_words
from augury.report.safe_text import safe

_LOOKS = {
    "forward": "forward",
    "backward": "backward",
    "recompute": "backward",
    "update": "update",
    "data": "data",
    "copy": "data",
    "launch": "launch",
    "sync": "waiting",
    "delay": "waiting",
    "unexplained": "unexplained",
    "other": "other",
}
_REASONS = {
    "start": "begins the path",
    "data": "an earlier operation",
    "resource": "its busy stream or link",
    "gang": "the last rank of a collective",
    "slowed": "slowed by sharing or interference",
}


def summary_section(page: RunPage) -> Section:
    diagnosis = page.diagnosis
    content = SummaryContent(
        verdict=capitalized(safe(diagnosis.verdict)) if diagnosis else _verdict(page.replay),
        figures=_figures(page),
        tables=[_waterfall(diagnosis)]
        if diagnosis is not None and diagnosis.waterfall
        else path_tables(page.replay),
    )
    return summary_of(content)


def path_tables(replay: ReplayResult) -> list[TableView]:
    """The critical path by kind of work, and by what its operations waited for."""
    return [_path_kinds(replay), _path_reasons(replay)]


def look_of_kind(kind: str) -> str:
    """Class of the style sheet for a kind of operation."""
    if kind.startswith("server_"):
        return "server"
    return _LOOKS.get(kind, "communication")


def _verdict(replay: ReplayResult) -> str:
    shares = replay.critical_path_summary.by_kind
    if not shares:
        return f"The replayed step takes {format_ns(replay.predicted_step_ns)}."
    first = shares[0]
    return (
        f"{format_percent(first.share_pct)} of the critical path is {first.name.replace('_', '-')}."
    )


def _figures(page: RunPage) -> list[KeyFigure]:
    replay = page.replay
    figures = []
    if replay.measured_step_ns is not None:
        measured = page.measured
        detail = f"over {format_count(measured.num_steps, 'step')}" if measured else ""
        figures.append(KeyFigure("Measured step", format_ns(replay.measured_step_ns), detail))
    interval = "" if replay.interval_ns is None else interval_words(replay.interval_ns)
    figures.append(KeyFigure("Replayed step", format_ns(replay.predicted_step_ns), interval))
    if replay.error_pct is not None:
        figures.append(
            KeyFigure(
                "Error", format_percent(replay.error_pct, signed=True), "replayed against measured"
            )
        )
    servers = format_count(replay.num_servers, "server") if replay.num_servers else ""
    figures.append(KeyFigure("Ranks", f"{replay.num_ranks:,}", servers))
    figures.append(
        KeyFigure(
            "Replayed",
            format_count(max(1, replay.num_steps), "step"),
            format_count(replay.num_ops, "operation"),
        )
    )
    peaks = [one.peak_memory_bytes for one in replay.ranks if one.peak_memory_bytes is not None]
    if peaks:
        figures.append(KeyFigure("Peak memory", format_bytes(max(peaks)), "on the fullest rank"))
    return figures


def _waterfall(diagnosis: Diagnosis) -> TableView:
    """Causes, each removed after those before it; the parts and the floor add up to the step."""
    parts = diagnosis.waterfall
    whole_ns = parts[0].step_ns + parts[0].removed_ns
    scale = 100 / max(1, whole_ns, *(one.step_ns + max(0, one.removed_ns) for one in parts))
    rows = [
        [
            Cell("the step"),
            Cell(""),
            ns_cell(whole_ns),
            Cell("", whole_ns, (Bar("total", 0, whole_ns * scale),)),
        ]
    ]
    for one in parts:
        low = min(one.step_ns, one.step_ns + one.removed_ns)
        look = "removed" if one.removed_ns >= 0 else "unexplained"
        bar = Bar(look, low * scale, abs(one.removed_ns) * scale)
        rest = Bar("rest", 0, low * scale)
        rows.append(
            [
                name_cell(one.name),
                signed_ns_cell(-one.removed_ns),
                ns_cell(one.step_ns),
                Cell("", 0, (rest, bar)),
            ]
        )
    floor_ns = parts[-1].step_ns
    rows.append(
        [
            Cell("compute floor"),
            Cell(""),
            ns_cell(floor_ns),
            Cell("", 0, (Bar("total", 0, floor_ns * scale),)),
        ]
    )
    return TableView(
        id="waterfall",
        caption="Waterfall: causes of the step's duration, each removed after those before it",
        columns=[
            Column("cause"),
            Column("change", is_number=True),
            Column("step that remains", is_number=True),
            Column("", is_bar=True),
        ],
        rows=rows,
        can_sort=False,
    )


def _path_kinds(replay: ReplayResult) -> TableView:
    before = 0.0
    rows = []
    for share in replay.critical_path_summary.by_kind:
        if not share.dur_ns:
            continue
        bar = Bar(look_of_kind(share.name), round(before, 3), round(share.share_pct, 3))
        rows.append(_share_row(share.name.replace("_", "-"), share, Cell("", 0, (bar,))))
        before += share.share_pct
    caption = "Where the time goes: the critical path of the replayed window by kind of work"
    return _share_table("where-time-goes", caption, "kind of work", rows)


def _path_reasons(replay: ReplayResult) -> TableView:
    rows = [
        _share_row(_REASONS.get(share.name, share.name), share, single_bar(share.share_pct, 100))
        for share in replay.critical_path_summary.by_reason
        if share.dur_ns
    ]
    caption = "What operations of the critical path waited for before they started"
    return _share_table("path-reasons", caption, "waited for", rows)


def _share_row(words: str, share: Share, bar: Cell) -> list[Cell]:
    return [Cell(words), ns_cell(share.dur_ns), percent_cell(share.share_pct), bar]


def _share_table(table_id: str, caption: str, head: str, rows: list[list[Cell]]) -> TableView:
    return TableView(
        id=table_id,
        caption=caption,
        columns=[
            Column(head),
            Column("time", is_number=True),
            Column("share", is_number=True),
            Column("", is_bar=True),
        ],
        rows=rows,
        can_sort=False,
    )
