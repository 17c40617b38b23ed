"""Durations of the measured steps of two runs, step by step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from augury.core.results.comparison import StepSeries
from augury.report.page.tables import (
    Cell,
    Column,
    Section,
    TableContent,
    TableView,
    count_cell,
    ns_cell,
    table_section,
)

MAX_POINTS = 600
"""Most points of one curve; more steps are shown as medians of neighbours."""
MAX_CHARTED_PAIRS = 4
HIGHEST = 3.0
"""Steps that take more than so many times the median lie above the chart."""


def step_section(pairs: Sequence[tuple[StepSeries, StepSeries]]) -> Section:
    labels = [""] if len(pairs) == 1 else [f" {number}" for number in range(1, len(pairs) + 1)]
    named = [
        (f"{when}{label}", side, series)
        for label, pair in zip(labels, pairs, strict=True)
        for side, (when, series) in enumerate(zip(("before", "after"), pair, strict=True), 1)
    ]
    every = np.concatenate([series.dur_ns for _, _, series in named])
    high_ns = round(1.05 * min(float(every.max(initial=1)), HIGHEST * float(np.median(every))))
    above = int((every > high_ns).sum())
    charted = named[: 2 * MAX_CHARTED_PAIRS]
    content = TableContent(
        about="Measured steps outside of recording windows, as the mean over the ranks."
        + (f" {above:,} of {len(every):,} steps lie above the chart." if above else "")
        + (
            f" The chart shows medians of neighbouring steps, {MAX_POINTS:,} points of each run."
            if any(len(series.step) > MAX_POINTS for _, _, series in charted)
            else ""
        ),
        table=_table(named),
        chart="step-chart",
    )
    chart = _chart(charted, high_ns)
    return table_section("steps", "Steps", content, **{"step-chart": chart})


def _chart(named: Sequence[tuple[str, int, StepSeries]], high_ns: int) -> dict[str, Any]:
    points = [dict(zip(*_thinned(series), strict=True)) for _, _, series in named]
    x = sorted(set().union(*points))
    return {
        "title": "Duration of each measured step",
        "unit": "ns",
        "xName": "step",
        "isLine": True,
        "high": high_ns,
        "x": x,
        "series": [
            {"label": label, "colour": side, "y": [own.get(step) for step in x]}
            for (label, side, _), own in zip(named, points, strict=True)
        ],
    }


def _thinned(series: StepSeries) -> tuple[list[int], list[int]]:
    """Medians of neighbours where there are more steps than points."""
    if len(series.step) <= MAX_POINTS:
        return series.step, series.dur_ns
    parts = np.array_split(np.arange(len(series.step)), MAX_POINTS)
    steps, durs = np.array(series.step), np.array(series.dur_ns)
    return (
        [int(steps[part[0]]) for part in parts],
        [round(float(np.median(durs[part]))) for part in parts],
    )


def _table(named: Sequence[tuple[str, int, StepSeries]]) -> TableView:
    shares = (0, 10, 50, 90, 100)
    rows = []
    for label, _, series in named:
        found = np.percentile(series.dur_ns, shares) if series.dur_ns else [0.0] * len(shares)
        rows.append(
            [Cell(label), count_cell(len(series.step)), *(ns_cell(round(v)) for v in found)]
        )
    return TableView(
        id="step-table",
        caption="Durations of the measured steps",
        columns=[
            Column("run"),
            Column("steps", is_number=True),
            Column("fastest", is_number=True),
            Column("10 % are below", is_number=True),
            Column("median", is_number=True),
            Column("90 % are below", is_number=True),
            Column("slowest", is_number=True),
        ],
        rows=rows,
    )
