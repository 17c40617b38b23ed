"""The step of each rank by what the rank does."""

from __future__ import annotations

from augury.core.run_page import RunPage
from augury.report.page.tables import (
    Column,
    Section,
    TableContent,
    TableView,
    bytes_cell,
    name_cell,
    ns_cell,
    rank_cell,
    stacked,
    table_section,
)

MAX_RANK_ROWS = 4_096
SHOWN_RANKS = 20


def rank_section(page: RunPage) -> Section | None:
    ranks = page.breakdown.ranks
    if not ranks:
        return None
    results = {one.rank: one for one in page.replay.ranks}
    longest_ns = max(one.step_ns for one in ranks)
    has_measured = any(one.measured_step_ns is not None for one in page.replay.ranks)
    has_memory = any(one.peak_memory_bytes for one in page.replay.ranks)
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
                rank_cell(one.rank),
                name_cell(result.host),
                *([ns_cell(result.measured_step_ns)] if has_measured else []),
                ns_cell(result.predicted_step_ns),
                *(ns_cell(value) for _, value in parts),
                stacked(parts, longest_ns),
                *([bytes_cell(result.peak_memory_bytes)] if has_memory else []),
            ]
        )
    table = TableView(
        id="rank-table",
        caption="Step of each rank by what it does",
        columns=[
            Column("rank", is_number=True),
            Column("host"),
            *([Column("measured step", is_number=True)] if has_measured else []),
            Column("replayed step", is_number=True),
            Column("compute", is_number=True),
            Column("transfer", is_number=True, hint="communication that no compute hides"),
            Column("waiting", is_number=True, hint="for other ranks, not hidden by compute"),
            *([Column("host only", is_number=True)] if has_host else []),
            Column("idle", is_number=True, hint="no recorded operation runs"),
            Column("share of the step", is_bar=True),
            *([Column("peak memory", is_number=True)] if has_memory else []),
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
