"""Plot of a sweep as SVG: time, efficiency and memory by strategy and number of devices."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from augury.core.results.oracle import OracleResult, OracleRow
from augury.core.units import NS_PER_S, format_bytes, format_ns
from augury.report import svg

WIDTH, LEFT, TOP, GAP = 1180, 74, 84, 84
PANEL_WIDTH, PANEL_HEIGHT, LEGEND_WIDTH = 250, 300, 150
# Dashes and radii alternate, because strategies with equal values, such as data and zero1, would
# otherwise hide each other.
DASHES = ("", "9,9", "3,9")
RADII = (4.5, 3.4, 2.3)


@dataclass(frozen=True, slots=True)
class SeriesStyle:
    colour: str
    dash: str
    radius: float

    @classmethod
    def of(cls, index: int) -> SeriesStyle:
        return cls(svg.colour(index), DASHES[index % len(DASHES)], RADII[index % len(RADII)])


Points = dict[str, list[tuple[int, float]]]
"""Pairs of a number of devices and a value, by strategy."""


def oracle_svg(result: OracleResult) -> str:
    rows = [row for row in result.rows if row.feasible]
    names = list(dict.fromkeys(row.strategy for row in result.rows))
    styles = {name: SeriesStyle.of(index) for index, name in enumerate(names)}
    counts = sorted({row.devices for row in result.rows})
    title = f"{result.model} on {result.cluster}"
    body = [
        *_panel(0, "time per step", _points(rows, "step_s"), counts, styles, _time, log=True),
        *_panel(
            1, "scaling efficiency", _points(rows, "efficiency_pct"), counts, styles, _percent
        ),
        *_panel(
            2, "memory per device", _points(rows, "memory_bytes"), counts, styles, format_bytes,
            log=True, limit=float(result.memory_limit_bytes),
        ),
        *_legend(styles),
    ]  # fmt: skip
    return svg.document(
        title,
        [_label(LEFT, 43, _subtitle(result)), *body],
        width=WIDTH,
        height=TOP + PANEL_HEIGHT + 60,
        left=LEFT,
        title_y=24,
    )


def _subtitle(result: OracleResult) -> str:
    replayed = any(row.fidelity == "replay" for row in result.rows)
    batches = sorted({row.global_batch for row in result.rows})
    batch = f"{batches[0]:,}" if len(batches) == 1 else f"{batches[0]:,} to {batches[-1]:,}"
    best = result.recommended
    chosen = f"; recommended: {best.strategy} on {best.devices:,} devices" if best else ""
    return (
        f"{result.device}, {result.precision}, global batch {batch},"
        f" steps {'replayed' if replayed else 'in closed form'}{chosen}"
    )


def _points(rows: list[OracleRow], field: str) -> Points:
    points: Points = {}
    for row in rows:
        points.setdefault(row.strategy, []).append((row.devices, float(getattr(row, field))))
    return points


def _panel(
    index: int,
    title: str,
    points: Points,
    device_counts: list[int],
    styles: dict[str, SeriesStyle],
    format_value: Callable[[float], str],
    *,
    log: bool = False,
    limit: float | None = None,
) -> Iterator[str]:
    """Yields the elements of one plot. ``index`` is its position from the left; ``limit`` is drawn
    as a horizontal line."""
    left = LEFT + index * (PANEL_WIDTH + GAP)
    values = [value for series in points.values() for _, value in series]
    if limit:
        values.append(limit)
    ticks = svg.log_ticks(values) if log else svg.linear_ticks(values)
    low, high = _scale(ticks[0], log), _scale(ticks[-1], log)

    def x(devices: int) -> float:
        first, last = math.log2(device_counts[0]), math.log2(device_counts[-1])
        return left + PANEL_WIDTH * (
            (math.log2(devices) - first) / (last - first) if last > first else 0.5
        )

    def y(value: float) -> float:
        share = (_scale(value, log) - low) / (high - low)
        return TOP + PANEL_HEIGHT * (1 - share)

    yield _label(left, TOP - 12, title, size=13)
    yield from svg.frame(left, TOP, PANEL_WIDTH, PANEL_HEIGHT)
    for value in ticks:
        yield svg.line(left, y(value), left + PANEL_WIDTH, y(value), svg.GRID)
        yield _label(left - 6, y(value) + 4, format_value(value), anchor="end")
    every = math.ceil(len(device_counts) / 6)  # at most six labels fit below the axis
    for devices in device_counts[:: max(1, every)]:
        yield _label(x(devices), TOP + PANEL_HEIGHT + 18, str(devices), anchor="middle")
    yield _label(left + PANEL_WIDTH / 2, TOP + PANEL_HEIGHT + 38, "devices", anchor="middle")
    if limit is not None:
        yield svg.line(left, y(limit), left + PANEL_WIDTH, y(limit), "#cc3311", dash="5,4")
        yield _label(left + PANEL_WIDTH, y(limit) - 5, "memory of a device", anchor="end")
    for name, series in points.items():
        path = " ".join(f"{x(devices):.1f},{y(value):.1f}" for devices, value in series)
        style = styles[name]
        yield (
            f'<polyline points="{path}" fill="none" stroke="{style.colour}" stroke-width="2"'
            f"{svg.dashed(style.dash)}/>"
        )
        for devices, value in series:
            tooltip = f"{name} on {devices} devices: {format_value(value)}"
            yield (
                f'<circle cx="{x(devices):.1f}" cy="{y(value):.1f}" r="{style.radius}"'
                f' fill="{style.colour}">'
                f"<title>{svg.text(tooltip)}</title></circle>"
            )


def _label(x: float, y: float, words: str, *, anchor: str = "start", size: int = 11) -> str:
    return svg.label(x, y, words, anchor=anchor, size=size)


def _scale(value: float, log: bool) -> float:
    return math.log10(max(value, 1e-12)) if log else value


def _legend(styles: dict[str, SeriesStyle]) -> Iterator[str]:
    left = WIDTH - LEGEND_WIDTH + 10
    for row, (name, style) in enumerate(styles.items()):
        y = TOP + 12 + 18 * row
        yield svg.line(left, y - 4, left + 30, y - 4, style.colour, width=2.5, dash=style.dash)
        yield _label(left + 36, y, name)


def _time(value_s: float) -> str:
    return format_ns(value_s * NS_PER_S)


def _percent(value: float) -> str:
    return f"{value:.0f} %"
