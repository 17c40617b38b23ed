"""Tables of a page: columns, and cells with text, a key to sort by, and bars."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from augury.core.units import format_bytes, format_ns, format_percent
from augury.report.safe_text import safe

MAX_NAME_CHARS = 120


@dataclass(frozen=True, slots=True)
class Bar:
    """A part of a bar, in per cent of the cell's width; ``look`` is a class of the style sheet."""

    look: str
    start_pct: float
    width_pct: float


@dataclass(frozen=True, slots=True)
class Cell:
    text: str
    key: float | str | None = None
    """Value to sort by; the text if None."""
    bars: tuple[Bar, ...] = ()


@dataclass(frozen=True, slots=True)
class Column:
    label: str
    is_number: bool = False
    hint: str = ""
    is_bar: bool = False
    is_short: bool = False
    """Whether its text stays on one line."""

    @property
    def look(self) -> str:
        """Class of the style sheet."""
        looks = {"number": self.is_number, "bars": self.is_bar, "short": self.is_short}
        return next((look for look, is_so in looks.items() if is_so), "")


@dataclass(frozen=True, kw_only=True)
class TableView:
    """The first ``shown`` rows are in the document; the script of the page adds the others on
    demand, from ``hidden``."""

    id: str
    caption: str
    columns: list[Column]
    rows: list[list[Cell]]
    shown: int = 20
    note: str = ""
    can_sort: bool = True

    @property
    def first(self) -> list[list[Cell]]:
        return self.rows[: self.shown]

    @property
    def hidden(self) -> list[list[Any]]:
        return [
            [[c.text, c.key, [[b.look, b.start_pct, b.width_pct] for b in c.bars]] for c in row]
            for row in self.rows[self.shown :]
        ]


@dataclass(frozen=True, kw_only=True)
class Section:
    """A part of a page, rendered by ``template`` with ``content`` as ``s``. ``charts`` are data for
    the script, by the id of their element."""

    id: str
    title: str
    template: str
    content: Any
    tables: Sequence[TableView] = ()
    charts: dict[str, Any] = field(default_factory=dict)
    packed: str = ""
    """Base64 for the script."""


@dataclass(frozen=True, kw_only=True)
class TableContent:
    """A table with words before it, a key of its colours, and a chart."""

    about: str
    table: TableView
    key: list[tuple[str, str]] = field(default_factory=list)
    chart: str = ""
    more: list[TableView] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class KeyFigure:
    name: str
    value: str
    detail: str = ""


@dataclass(frozen=True, kw_only=True)
class SummaryContent:
    """The first section of a page: one sentence, further ones, key figures and tables."""

    verdict: str
    notes: Sequence[str] = ()
    figures: Sequence[KeyFigure] = ()
    tables: Sequence[TableView] = ()


def summary_of(content: SummaryContent) -> Section:
    return Section(
        id="summary",
        title="Summary",
        template="summary.html",
        content=content,
        tables=content.tables,
    )


def table_section(section_id: str, title: str, content: TableContent, **charts: Any) -> Section:
    return Section(
        id=section_id,
        title=title,
        template="table_section.html",
        content=content,
        tables=[content.table, *content.more],
        charts=charts,
    )


def name_cell(text: str) -> Cell:
    """A name of unknown origin."""
    return Cell(safe(text, max_chars=MAX_NAME_CHARS))


def rank_cell(rank: int | None) -> Cell:
    return Cell("shared", -1) if rank is None else Cell(str(rank), rank)


def count_cell(value: float) -> Cell:
    return Cell(f"{value:,.10g}", value)


def ns_cell(value_ns: float | None) -> Cell:
    return Cell("", -1.0) if value_ns is None else Cell(format_ns(value_ns), value_ns)


def signed_ns_cell(value_ns: int) -> Cell:
    sign = "+" if value_ns > 0 else "-" if value_ns < 0 else ""
    return Cell(f"{sign}{format_ns(abs(value_ns))}", value_ns)


def interval_cell(interval_ns: tuple[int, int] | None) -> Cell:
    if interval_ns is None:
        return Cell("", -1.0)
    low, high = interval_ns
    return Cell(f"{format_ns(low)} to {format_ns(high)}", low)


def bytes_cell(value_bytes: float | None) -> Cell:
    if not value_bytes:
        return Cell("", -1.0)
    return Cell(format_bytes(value_bytes), value_bytes)


def rate_cell(bytes_per_s: float | None) -> Cell:
    if bytes_per_s is None:
        return Cell("", -1.0)
    return Cell(f"{format_bytes(bytes_per_s)}/s", bytes_per_s)


def percent_cell(value: float | None, *, signed: bool = False) -> Cell:
    return Cell("", -1e9) if value is None else Cell(format_percent(value, signed=signed), value)


def stacked(parts: Sequence[tuple[str, float]], whole: float) -> Cell:
    """A bar of several parts, one after the other, as shares of ``whole``. Its words are those of
    the cells beside it, so it has no text."""
    bars = []
    at_pct = 0.0
    for look, value in parts:
        width = max(0.0, 100 * value / whole) if whole > 0 else 0.0
        width = min(width, 100 - at_pct)
        if width > 0:
            bars.append(Bar(look, round(at_pct, 3), round(width, 3)))
        at_pct += width
    return Cell("", sum(value for _, value in parts), tuple(bars))


def bar_with_interval(
    look: str, value: float, interval: tuple[int, int] | None, scale: float
) -> Cell:
    """A bar from the left edge with the interval of its end; ``scale`` is per cent per unit."""
    bars = [Bar(look, 0, round(value * scale, 3))]
    if interval is not None:
        low, high = interval
        width = max(0.3, (high - low) * scale)
        bars.append(Bar("interval", round(low * scale, 3), round(width, 3)))
    return Cell("", value, tuple(bars))


def longest_of(number: int, whole: int, noun: str) -> str:
    """Note of a table that does not have all rows."""
    return f"The {number:,} longest of {whole:,} {noun}." if number < whole else ""


def single_bar(value: float, whole: float, look: str = "total") -> Cell:
    """A bar from the left edge, as a share of ``whole``."""
    return Cell("", value, (Bar(look, 0, round(100 * value / max(1, whole), 3)),))
