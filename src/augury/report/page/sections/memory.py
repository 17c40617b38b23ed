"""Memory of the ranks over the window, and its holders at the peak."""

from __future__ import annotations

from typing import Any

import numpy as np

from augury.core.memory_curve import MemoryCurve, memory_curve
from augury.core.results.replay import RankResult
from augury.core.run_page import RunPage
from augury.report.page.tables import (
    Cell,
    Column,
    Section,
    TableContent,
    TableView,
    bytes_cell,
    name_cell,
    ns_cell,
    percent_cell,
    rank_cell,
    single_bar,
    table_section,
)

MAX_CHARTED_RANKS = 6
MAX_POINTS = 500


def memory_section(page: RunPage) -> Section | None:
    known = [one for one in page.replay.ranks if one.peak_memory_bytes]
    if not known:
        return None
    fullest = max(known, key=lambda one: one.peak_memory_bytes or 0)
    content = TableContent(
        about="Memory that the replayed operations hold, as far as the recording knows it.",
        table=_holders(fullest),
        chart="memory-chart",
        more=[_peaks(known)],
    )
    chart = _chart(memory_curve(page.timeline), known, page.timeline.makespan_ns)
    return table_section("memory", "Memory", content, **{"memory-chart": chart})


def _holders(fullest: RankResult) -> TableView:
    peak = fullest.peak_memory_bytes or 1
    rows = [
        [
            Cell(one.kind),
            name_cell(one.layer),
            bytes_cell(one.size_bytes),
            percent_cell(100 * one.size_bytes / peak),
            single_bar(one.size_bytes, peak),
        ]
        for one in fullest.peak_memory_holders
    ]
    other = fullest.peak_memory_other_bytes
    if other:
        share = percent_cell(100 * other / peak)
        bar = single_bar(other, peak)
        rows.append([Cell("all others"), Cell(""), bytes_cell(other), share, bar])
    return TableView(
        id="holder-table",
        caption=f"Holders of the peak memory of rank {fullest.rank}",
        columns=[
            Column("kind", is_short=True),
            Column("layer"),
            Column("size", is_number=True),
            Column("share", is_number=True),
            Column("", is_bar=True),
        ],
        rows=rows,
    )


def _peaks(known: list[RankResult]) -> TableView:
    largest = max(one.peak_memory_bytes or 0 for one in known)
    return TableView(
        id="peak-table",
        caption="Peak memory of each rank",
        columns=[
            Column("rank", is_number=True),
            Column("peak", is_number=True),
            Column("reached at", is_number=True),
            Column("largest kind", is_short=True),
            Column("", is_bar=True),
        ],
        rows=[
            [
                rank_cell(one.rank),
                bytes_cell(one.peak_memory_bytes),
                ns_cell(one.peak_memory_at_ns),
                Cell(next(iter(one.peak_memory_by_kind), "")),
                single_bar(one.peak_memory_bytes or 0, largest),
            ]
            for one in known[:4_096]
        ],
        shown=8,
    )


def _chart(curve: MemoryCurve, known: list[RankResult], end_ns: int) -> dict[str, Any]:
    """Ranks with the highest and the lowest peaks; the curve of identical ones appears once."""
    by_peak = sorted(known, key=lambda one: -(one.peak_memory_bytes or 0))
    chosen: dict[bytes, tuple[int, Any, Any]] = {}
    for one in [*by_peak[: MAX_CHARTED_RANKS - 1], by_peak[-1]]:
        low, high = np.searchsorted(curve.rank, [one.rank, one.rank + 1])
        at_ns, held = curve.at_ns[low:high], curve.held_bytes[low:high]
        chosen.setdefault(at_ns.tobytes() + held.tobytes(), (one.rank, at_ns, held))
    grid = _grid([at_ns for _, at_ns, _ in chosen.values()], end_ns)
    return {
        "title": "Memory over the window",
        "unit": "bytes",
        "x": grid.tolist(),
        "series": [
            {"label": f"rank {rank}", "y": _most_between(at_ns, held, grid)}
            for rank, at_ns, held in chosen.values()
        ],
    }


def _grid(times: list[Any], end_ns: int) -> Any:
    every = np.concatenate([[0, end_ns], *times]).astype(np.int64)
    points, _ = np.unique(np.clip(every, 0, end_ns), return_counts=True)
    if len(points) <= MAX_POINTS:
        return points
    return np.rint(np.linspace(0, end_ns, MAX_POINTS)).astype(np.int64)


def _most_between(at_ns: Any, held: Any, grid: Any) -> list[int]:
    """The most that is held between a point of the grid and the next one, so that no peak is
    missed."""
    if not len(at_ns):
        return [0] * len(grid)
    before = np.searchsorted(at_ns, grid, side="right") - 1
    level = np.where(before >= 0, held[np.maximum(before, 0)], 0)
    inside = np.searchsorted(grid, at_ns, side="right") - 1
    np.maximum.at(level, np.clip(inside, 0, len(grid) - 1), held)
    return [int(value) for value in level]
