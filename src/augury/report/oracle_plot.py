"""A sweep as a picture: time, efficiency and memory by strategy and number of devices. SVG written
by hand, with nothing to fetch from anywhere."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape

from augury.core.results.oracle import OracleResult, OracleRow
from augury.core.units import NS_PER_S, format_bytes, format_ns
from augury.report.safe_text import safe

WIDTH, LEFT, TOP, GAP = 1180, 74, 84, 84
PANEL, HEIGHT, LEGEND = 250, 300, 150
COLOURS = (
    "#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee",
    "#aa3377", "#bb5566", "#004488", "#997700", "#777777",
)  # fmt: skip
"""Told apart by people who see colours differently, too."""
DASHES = ("", "9,9", "3,9")
RADII = (4.5, 3.4, 2.3)
"""In turn: strategies that come to the same, such as data and zero1, would hide each other."""
MOST_TICKS = 7


@dataclass(frozen=True, slots=True)
class Style:
    colour: str
    dash: str
    radius: float

    @classmethod
    def of(cls, place: int) -> Style:
        return cls(
            COLOURS[place % len(COLOURS)], DASHES[place % len(DASHES)], RADII[place % len(RADII)]
        )


Points = dict[str, list[tuple[int, float]]]
"""By strategy: number of devices, value."""


def oracle_svg(result: OracleResult) -> str:
    rows = [row for row in result.rows if row.feasible]
    names = list(dict.fromkeys(row.strategy for row in result.rows))
    styles = {name: Style.of(place) for place, name in enumerate(names)}
    numbers = sorted({row.devices for row in result.rows})
    title = f"{result.model} on {result.cluster}"
    body = [
        *_panel(0, "time per step", _points(rows, "step_s"), numbers, styles, _time, log=True),
        *_panel(
            1, "scaling efficiency", _points(rows, "efficiency_pct"), numbers, styles, _percent
        ),
        *_panel(
            2, "memory a device", _points(rows, "memory_bytes"), numbers, styles, format_bytes,
            log=True, line=float(result.memory_limit_bytes),
        ),
        *_legend(styles),
    ]  # fmt: skip
    height = TOP + HEIGHT + 60
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}"'
            f' width="{WIDTH}" height="{height}" font-family="sans-serif" font-size="12">',
            f"<title>{_text(title)}</title>",
            '<rect width="100%" height="100%" fill="#ffffff"/>',
            f'<text x="{LEFT}" y="24" font-size="15" fill="#111111">{_text(title)}</text>',
            _label(LEFT, 43, _about(result)),
            *body,
            "</svg>",
            "",
        ]
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
    place: int,
    title: str,
    points: Points,
    numbers: list[int],
    styles: dict[str, Style],
    words: object,
    *,
    log: bool = False,
    line: float | None = None,
) -> Iterator[str]:
    """``line`` is drawn across: a limit."""
    assert callable(words)
    left = LEFT + place * (PANEL + GAP)
    values = [value for found in points.values() for _, value in found] + ([line] if line else [])
    ticks = log_ticks(values) if log else plain_ticks(values)
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
    yield _line(left, TOP + HEIGHT, left + PANEL, TOP + HEIGHT, "#333333")
    yield _line(left, TOP, left, TOP + HEIGHT, "#333333")
    for value in ticks:
        yield _line(left, y(value), left + PANEL, y(value), "#dddddd")
        yield _label(left - 6, y(value) + 4, str(words(value)), anchor="end")
    for number in numbers[:: max(1, -(-len(numbers) // 6))]:
        yield _label(x(number), TOP + HEIGHT + 18, str(number), anchor="middle")
    yield _label(left + PANEL / 2, TOP + HEIGHT + 38, "devices", anchor="middle")
    if line is not None:
        yield _line(left, y(line), left + PANEL, y(line), "#cc3311", dash="5,4")
        yield _label(left + PANEL, y(line) - 5, "what a device has", anchor="end")
    for name, found in points.items():
        path = " ".join(f"{x(number):.1f},{y(value):.1f}" for number, value in found)
        style = styles[name]
        yield (
            f'<polyline points="{path}" fill="none" stroke="{style.colour}" stroke-width="2"'
            f"{_dashed(style.dash)}/>"
        )
        for number, value in found:
            about = f"{name} on {number} devices: {words(value)}"
            yield (
                f'<circle cx="{x(number):.1f}" cy="{y(value):.1f}" r="{style.radius}"'
                f' fill="{style.colour}">'
                f"<title>{_text(about)}</title></circle>"
            )


def log_ticks(values: list[float]) -> list[float]:
    """1, 2, 5, 10, ... around all values; where those are too many, evenly fewer."""
    known = [max(value, 1e-12) for value in values] or [1.0]
    decades = range(math.floor(math.log10(min(known))) - 1, math.ceil(math.log10(max(known))) + 3)
    steps = [factor * 10.0**decade for decade in decades for factor in (1, 2, 5)]
    first = max(i for i, step in enumerate(steps) if step <= min(known))
    last = min(i for i, step in enumerate(steps) if step >= max(known) and i > first)
    stride = -(-(last - first) // (MOST_TICKS - 1))
    steps += [factor * 10.0**decades.stop for factor in (1, 2, 5)]
    return steps[first : last + stride : stride]


def plain_ticks(values: list[float]) -> list[float]:
    """From 0 in even round steps to above all values."""
    high = max(values, default=1.0) or 1.0
    decade = 10.0 ** math.floor(math.log10(high))
    sizes = [factor * decade for factor in (0.1, 0.2, 0.25, 0.5, 1, 2)]
    size = next(size for size in sizes if high / size <= MOST_TICKS - 1)
    return [size * place for place in range(math.ceil(high / size * (1 - 1e-9)) + 1)]


def _scale(value: float, log: bool) -> float:
    return math.log10(max(value, 1e-12)) if log else value


def _legend(styles: dict[str, Style]) -> Iterator[str]:
    left = WIDTH - LEGEND + 10
    for row, (name, style) in enumerate(styles.items()):
        y = TOP + 12 + 18 * row
        yield _line(left, y - 4, left + 30, y - 4, style.colour, width=2.5, dash=style.dash)
        yield _label(left + 36, y, name)


def _line(
    x1: float, y1: float, x2: float, y2: float, colour: str, *, width: float = 1, dash: str = ""
) -> str:
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"'
        f' stroke-width="{width}"{_dashed(dash)}/>'
    )


def _dashed(dash: str) -> str:
    return f' stroke-dasharray="{dash}"' if dash else ""


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
