"""A sweep as a picture: time, efficiency and memory by strategy and number of devices. SVG written
by hand, with nothing to fetch from anywhere."""

from __future__ import annotations

import math
from collections.abc import Iterator
from html import escape

from augury.core.units import NS_PER_S, format_bytes, format_ns
from augury.report.oracle_result import OracleResult, OracleRow
from augury.report.safe_text import safe

WIDTH, LEFT, TOP, GAP = 1180, 74, 64, 84
PANEL, HEIGHT, LEGEND = 250, 300, 150
COLOURS = (
    "#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee",
    "#aa3377", "#bb5566", "#004488", "#997700", "#777777",
)  # fmt: skip
"""Told apart by people who see colours differently, too."""

Points = dict[str, list[tuple[int, float]]]
"""By strategy: number of devices, value."""


def oracle_svg(result: OracleResult) -> str:
    rows = [row for row in result.rows if row.feasible]
    names = list(dict.fromkeys(row.strategy for row in result.rows))
    colours = {name: COLOURS[i % len(COLOURS)] for i, name in enumerate(names)}
    numbers = sorted({row.devices for row in result.rows})
    title = f"{result.model} on {result.cluster}"
    body = [
        *_panel(0, "time per step", _points(rows, "step_s"), numbers, colours, _time, log=True),
        *_panel(
            1, "scaling efficiency", _points(rows, "efficiency_pct"), numbers, colours, _percent
        ),
        *_panel(
            2, "memory a device", _points(rows, "memory_bytes"), numbers, colours, format_bytes,
            log=True, line=float(result.memory_limit_bytes),
        ),
        *_legend(colours),
    ]  # fmt: skip
    height = TOP + HEIGHT + 60
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}"'
            f' width="{WIDTH}" height="{height}" font-family="sans-serif" font-size="12">',
            f"<title>{_text(title)}</title>",
            '<rect width="100%" height="100%" fill="#ffffff"/>',
            f'<text x="{LEFT}" y="24" font-size="15" fill="#111111">{_text(title)}</text>',
            *body,
            "</svg>",
            "",
        ]
    )


def _points(rows: list[OracleRow], field: str) -> Points:
    found: Points = {}
    for row in rows:
        found.setdefault(row.strategy, []).append((row.devices, float(getattr(row, field))))
    return found


def _panel(
    place: int,
    title: str,
    points: Points,
    numbers: list[int],
    colours: dict[str, str],
    words: object,
    *,
    log: bool = False,
    line: float | None = None,
) -> Iterator[str]:
    """``line`` is drawn across: a limit."""
    assert callable(words)
    left = LEFT + place * (PANEL + GAP)
    values = [value for found in points.values() for _, value in found] + ([line] if line else [])
    low, high = _span(values, log=log)

    def x(number: int) -> float:
        first, last = math.log2(numbers[0]), math.log2(numbers[-1])
        return left + PANEL * (
            (math.log2(number) - first) / (last - first) if last > first else 0.5
        )

    def y(value: float) -> float:
        share = (_scale(value, log) - low) / (high - low)
        return TOP + HEIGHT * (1 - share)

    yield _label(left, TOP - 12, title, size=13)
    yield _line(left, TOP + HEIGHT, left + PANEL, TOP + HEIGHT, "#333333")
    yield _line(left, TOP, left, TOP + HEIGHT, "#333333")
    for tick in range(5):
        scaled = low + (high - low) * tick / 4
        value = 10**scaled if log else scaled
        yield _line(left, y(value), left + PANEL, y(value), "#dddddd")
        yield _label(left - 6, y(value) + 4, str(words(value)), anchor="end")
    for number in numbers[:: max(1, -(-len(numbers) // 6))]:
        yield _label(x(number), TOP + HEIGHT + 18, str(number), anchor="middle")
    yield _label(left + PANEL / 2, TOP + HEIGHT + 38, "devices", anchor="middle")
    if line is not None:
        yield _line(left, y(line), left + PANEL, y(line), "#cc3311", dash="5,4")
    for name, found in points.items():
        path = " ".join(f"{x(number):.1f},{y(value):.1f}" for number, value in found)
        yield f'<polyline points="{path}" fill="none" stroke="{colours[name]}" stroke-width="1.8"/>'
        for number, value in found:
            about = f"{name} on {number} devices: {words(value)}"
            yield (
                f'<circle cx="{x(number):.1f}" cy="{y(value):.1f}" r="3" fill="{colours[name]}">'
                f"<title>{_text(about)}</title></circle>"
            )


def _span(values: list[float], *, log: bool) -> tuple[float, float]:
    if not values:
        return 0.0, 1.0
    scaled = [_scale(value, log) for value in values]
    low, high = (min(scaled) if log else 0.0), max(scaled)
    return (low, high) if high > low else (low - 1, high + 1)


def _scale(value: float, log: bool) -> float:
    return math.log10(max(value, 1e-12)) if log else value


def _legend(colours: dict[str, str]) -> Iterator[str]:
    left = WIDTH - LEGEND + 10
    for row, (name, colour) in enumerate(colours.items()):
        y = TOP + 12 + 18 * row
        yield _line(left, y - 4, left + 20, y - 4, colour, width=3)
        yield _label(left + 26, y, name)


def _line(
    x1: float, y1: float, x2: float, y2: float, colour: str, *, width: float = 1, dash: str = ""
) -> str:
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"'
        f' stroke-width="{width}"{dashed}/>'
    )


def _label(x: float, y: float, text: str, *, anchor: str = "start", size: int = 11) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}"'
        f' fill="#333333">{_text(text)}</text>'
    )


def _text(text: str) -> str:
    """Names come from files."""
    return escape(safe(text, max_chars=300))


def _time(value_s: float) -> str:
    return format_ns(value_s * NS_PER_S)


def _percent(value: float) -> str:
    return f"{value:.0f} %"
