"""Terminal output of all renderers: tables, bars and titles.

Markup and emoji codes are off, so that names are printed literally.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

MIN_WIDTH = 80
"""On a narrower terminal lines wrap: cut numbers would be wrong numbers."""
MIN_BAR, MAX_BAR = 8, 40

Parts = list[tuple[float, str]]
"""Percentages, each with its style."""

BarRow = tuple[list[str], Parts, list[str]]
"""Cells before a bar, the bar, and cells after it."""


def make_console(file: TextIO) -> Console:
    """Returns a console; rich itself honours NO_COLOR and COLUMNS, and detects terminals."""
    from rich.console import Console

    console = Console(file=file, markup=False, emoji=False, highlight=False)
    console.width = max(console.width, MIN_WIDTH)
    return console


def columns(*headers: str) -> Table:
    """Returns a table without a frame. A header that starts with ``>`` makes a right-aligned column
    of numbers; one that starts with ``~`` makes a column of text that may wrap."""
    from rich.table import Table

    show = any(header.strip(">~") for header in headers)
    table = Table(
        box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim", show_header=show
    )
    for header in headers:
        table.add_column(
            header.lstrip(">~"),
            justify="right" if header.startswith(">") else "left",
            no_wrap=not header.startswith("~"),
            overflow="fold",
        )
    return table


def add_with_bars(console: Console, table: Table, rows: Sequence[BarRow]) -> None:
    """Adds rows with bars, which get the width that the cells leave."""
    if not rows:
        return
    cells = [[*before, *after] for before, _, after in rows]
    heads = [str(column.header) for column in table.columns]
    del heads[len(rows[0][0])]
    widths = [max(map(len, column)) for column in zip(heads, *cells, strict=True)]
    room = console.width - sum(widths) - 2 * (len(widths) + 1)
    width = min(MAX_BAR, max(MIN_BAR, room))
    for before, parts, after in rows:
        table.add_row(*before, bar(console, parts, width), *after)


def bar(console: Console, parts: Parts, width: int) -> Text:
    """Returns the parts side by side, each with its own fill character."""
    from rich.text import Text

    is_utf = console.encoding.lower().startswith("utf")
    fillings = "█▒·" if is_utf else "#=."
    text = Text()
    end = 0.0
    drawn = 0
    for (share, style), filling in zip(parts, fillings, strict=False):
        end += share
        upto = min(width, round(end * width / 100))
        text.append(filling * (upto - drawn), style=style)
        drawn = upto
    return text


def title(console: Console, text: str, note: str = "") -> None:
    from rich.text import Text

    line = Text(f"\n{text}", style="bold")
    if note:
        line.append(f"  {note}", style="not bold dim")
    console.print(line)
