"""Results as HTML for notebooks: the terminal's text, escaped."""

from __future__ import annotations

from html import escape

_STYLE = "white-space: pre; overflow-x: auto; line-height: 1.25"


def as_html(text: str) -> str:
    """Names in the text come from traces, so every character is escaped."""
    return f'<pre style="{_STYLE}">{escape(text)}</pre>'
