"""Plot of a sweep as SVG: time, efficiency and memory by strategy and number of devices."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from augury.core.results.oracle import OracleResult, OracleRow
from augury.core.units import NS_PER_S, format_bytes, format_ns
from augury.report import svg

WIDTH, LEFT, TOP, GAP = 1180, 74, 84, 84
PANEL, HEIGHT, LEGEND = 250, 300, 150
DASHES = ("", "9,9", "3,9")
RADII = (4.5, 3.4, 2.3)
"""Dashes and radii alternate: strategies with equal values, such as data and zero1, would hide each
other."""


@dataclass(frozen=True, slots=True)
class SeriesStyle:
    colour: str
    dash: str
    radius: float

    @classmethod
    def of(cls, index: int) -> SeriesStyle:
        return cls(svg.colour(index), DASHES[index % len(DASHES)], RADII[index % len(RADII)])


Points = dict[str, list[tuple[int, float]]]
"""Pairs of number of devices and value, by strategy."""


def oracle_svg(result: OracleResult) -> str:
    rows = [row for row in result.rows if row.feasible]
    names = list(dict.fromkeys(row.strategy for row in result.rows))
    styles = {name: SeriesStyle.of(index) for index, name in enumerate(names)}
    numbers = sorted({row.devices for row in result.rows})
    title = f"{result.model} on {result.cluster}"
    body = [
        *_panel(0, "time per step", _points(rows, "step_s"), numbers, styles, _time, log=True),
        *_panel(
            1, "scaling efficiency", _points(rows, "efficiency_pct"), numbers, styles, _percent
        ),
        *_panel(
            2, "memory per device", _points(rows, "memory_bytes"), numbers, styles, format_bytes,
            log=True, limit=float(result.memory_limit_bytes),
        ),
        *_legend(styles),
    ]  # fmt: skip
    return svg.document(
        title,
        [_label(LEFT, 43, _about(result)), *body],
        width=WIDTH,
        height=TOP + HEIGHT + 60,
        left=LEFT,
        title_y=24,
    )


def _about(result: OracleResult) -> str:
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
    found: Points = {}
    for row in rows:
        found.setdefault(row.strategy, []).append((row.devices, float(getattr(row, field))))
    return found


def _panel(
    index: int,
    title: str,
    points: Points,
    numbers: list[int],
    styles: dict[str, SeriesStyle],
    show: Callable[[float], str],
    *,
    log: bool = False,
    limit: float | None = None,
) -> Iterator[str]:
    """One plot; ``limit`` is drawn as a horizontal line."""
    left = LEFT + index * (PANEL + GAP)
    values = [value for found in points.values() for _, value in found] + ([limit] if limit else [])
    ticks = svg.log_ticks(values) if log else svg.linear_ticks(values)
    low, high = _scale(ticks[0], log), _scale(ticks[-1], log)

    def x(number: int) -> float:
        first, last = math.log2(numbers[0]), math.log2(numbers[-1])
        return left + PANEL * (
            (math.log2(number) - first) / (last - first) if last > first else 0.5
        )

    def y(value: float) -> float:
        share = (_scale(value, log) - low) / (high - low)
        return TOP + HEIGHT * (1 - share)

    yield _label(left, TOP - 12, title, size=13)
    yield from svg.frame(left, TOP, PANEL, HEIGHT)
    for value in ticks:
        yield svg.line(left, y(value), left + PANEL, y(value), svg.GRID)
        yield _label(left - 6, y(value) + 4, show(value), anchor="end")
    for number in numbers[:: max(1, -(-len(numbers) // 6))]:
        yield _label(x(number), TOP + HEIGHT + 18, str(number), anchor="middle")
    yield _label(left + PANEL / 2, TOP + HEIGHT + 38, "devices", anchor="middle")
    if limit is not None:
        yield svg.line(left, y(limit), left + PANEL, y(limit), "#cc3311", dash="5,4")
        yield _label(left + PANEL, y(limit) - 5, "memory of a device", anchor="end")
    for name, found in points.items():
        path = " ".join(f"{x(number):.1f},{y(value):.1f}" for number, value in found)
        style = styles[name]
        yield (
            f'<polyline points="{path}" fill="none" stroke="{style.colour}" stroke-width="2"'
            f"{svg.dashed(style.dash)}/>"
        )
        for number, value in found:
            about = f"{name} on {number} devices: {show(value)}"
            yield (
                f'<circle cx="{x(number):.1f}" cy="{y(value):.1f}" r="{style.radius}"'
                f' fill="{style.colour}">'
                f"<title>{svg.text(about)}</title></circle>"
            )


def _label(x: float, y: float, words: str, *, anchor: str = "start", size: int = 11) -> str:
    return svg.label(x, y, words, anchor=anchor, size=size)


def _scale(value: float, log: bool) -> float:
    return math.log10(max(value, 1e-12)) if log else value


def _legend(styles: dict[str, SeriesStyle]) -> Iterator[str]:
    left = WIDTH - LEGEND + 10
    for row, (name, style) in enumerate(styles.items()):
        y = TOP + 12 + 18 * row
        yield svg.line(left, y - 4, left + 30, y - 4, style.colour, width=2.5, dash=style.dash)
        yield _label(left + 36, y, name)


def _time(value_s: float) -> str:
    return format_ns(value_s * NS_PER_S)


def _percent(value: float) -> str:
    return f"{value:.0f} %"
