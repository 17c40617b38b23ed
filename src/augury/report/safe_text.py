"""Text of unknown origin, made harmless to a terminal: the one place where that happens.

Names come from traces, paths from anywhere. Control characters move cursors and change titles,
bidi marks reorder what is read, invisible ones hide differences: all are shown as escapes.
"""

from __future__ import annotations

import unicodedata

MAX_CHARS = 400
_ELLIPSIS = "..."
_HIDDEN = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"))
_COMBINING = frozenset(("Mn", "Me"))
_MAX_COMBINING = 2
"""Marks that may sit on one letter; a tower of them would cover the lines above."""


def safe(text: str, *, max_chars: int = MAX_CHARS) -> str:
    """One line, nothing hidden, at most ``max_chars`` long: the middle goes first, because names
    of operations differ at their ends."""
    return shorten(escape(_trim(text, max_chars)), max_chars)


def escape(text: str) -> str:
    """Every character that a terminal would obey or not show, in Python's notation."""
    if text.isascii() and text.isprintable():
        return text
    shown: list[str] = []
    marks = 0
    for char in text:
        category = unicodedata.category(char)
        marks = marks + 1 if category in _COMBINING else 0
        hidden = category in _HIDDEN or marks > _MAX_COMBINING
        shown.append(_escaped(char) if hidden else char)
    return "".join(shown)


def shorten(text: str, max_chars: int) -> str:
    if len(text) <= max_chars:
        return text
    if max_chars <= len(_ELLIPSIS):
        return text[: max(0, max_chars)]
    tail = (max_chars - len(_ELLIPSIS)) // 2
    head = max_chars - len(_ELLIPSIS) - tail
    return text[:head] + _ELLIPSIS + text[len(text) - tail :]


def _trim(text: str, max_chars: int) -> str:
    """A name of many megabytes is cut before every character of it is looked at."""
    return text if len(text) <= 4 * max_chars else shorten(text, 4 * max_chars)


def _escaped(char: str) -> str:
    code = ord(char)
    if char in "\n\r\t":
        return {"\n": "\\n", "\r": "\\r", "\t": "\\t"}[char]
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
