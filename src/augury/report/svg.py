"""SVG elements of the plots: palette, document, lines, labels and ticks of axes.

Documents are self-contained. Names come from files, so all text is made safe and escaped.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from augury.report.safe_text import safe

PALETTE = (
    "#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee",
    "#aa3377", "#bb5566", "#004488", "#997700", "#777777",
)  # fmt: skip
"""Colours that readers with colour vision deficiency can distinguish."""
AXIS, GRID, TEXT, TITLE = "#333333", "#dddddd", "#333333", "#111111"
MAX_TICKS = 7


def colour(index: int) -> str:
    return PALETTE[index % len(PALETTE)]


def document(
    title: str, body: Sequence[str], *, width: int, height: int, left: int, title_y: int
) -> str:
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"'
            f' width="{width}" height="{height}" font-family="sans-serif" font-size="12">',
            f"<title>{text(title)}</title>",
            '<rect width="100%" height="100%" fill="#ffffff"/>',
            f'<text x="{left}" y="{title_y}" font-size="15" fill="{TITLE}">{text(title)}</text>',
            *body,
            "</svg>",
            "",
        ]
    )


def line(
    x1: float, y1: float, x2: float, y2: float, stroke: str, *, width: float = 1, dash: str = ""
) -> str:
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{stroke}"'
        f' stroke-width="{width}"{dashed(dash)}/>'
    )


def dashed(dash: str) -> str:
    """Attribute of a dashed stroke; empty for a solid one."""
    return f' stroke-dasharray="{dash}"' if dash else ""


def label(x: float, y: float, words: str, *, anchor: str = "start", size: int | None = None) -> str:
    font = f' font-size="{size}"' if size is not None else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{font} fill="{TEXT}">'
        f"{text(words)}</text>"
    )


def frame(left: float, top: float, width: float, height: float) -> list[str]:
    """Horizontal and vertical axis of a plot."""
    bottom = top + height
    return [
        line(left, bottom, left + width, bottom, AXIS),
        line(left, top, left, bottom, AXIS),
    ]


def text(words: str) -> str:
    return escape(safe(words, max_chars=300))


def log_ticks(values: Sequence[float]) -> list[float]:
    """Ticks 1, 2, 5, 10, ... that enclose all values; evenly thinned out to ``MAX_TICKS``."""
    known = [max(value, 1e-12) for value in values] or [1.0]
    decades = range(math.floor(math.log10(min(known))) - 1, math.ceil(math.log10(max(known))) + 3)
    steps = [factor * 10.0**decade for decade in decades for factor in (1, 2, 5)]
    first = max(i for i, step in enumerate(steps) if step <= min(known))
    last = min(i for i, step in enumerate(steps) if step >= max(known) and i > first)
    stride = -(-(last - first) // (MAX_TICKS - 1))
    steps += [factor * 10.0**decades.stop for factor in (1, 2, 5)]
    return steps[first : last + stride : stride]


def linear_ticks(values: Sequence[float]) -> list[float]:
    """Ticks from 0 in even round steps to above all values."""
    high = max(values, default=1.0) or 1.0
    decade = 10.0 ** math.floor(math.log10(high))
    sizes = [factor * decade for factor in (0.1, 0.2, 0.25, 0.5, 1, 2)]
    size = next(size for size in sizes if high / size <= MAX_TICKS - 1)
    return [size * index for index in range(math.ceil(high / size * (1 - 1e-9)) + 1)]
