"""Escapes text of unknown origin, such as names in traces and paths, for terminals.

Control characters move cursors and change titles, bidi marks reorder the text on the screen, and
invisible characters hide differences. All of them are shown as escapes.
"""

from __future__ import annotations

import re
import unicodedata

MAX_CHARS = 400
_ELLIPSIS = "..."
_SEPARATOR = re.compile(r"[./:\\]+")
_HIDDEN = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"))
_COMBINING = frozenset(("Mn", "Me"))
_MAX_COMBINING = 2
"""Marks that may sit on one letter; a tower of them would cover the lines above."""


def safe(text: str, *, max_chars: int = MAX_CHARS) -> str:
    """One line of visible characters, at most ``max_chars`` long."""
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
    """Cuts a long text: a path or module path at a separator, since its last parts tell most, and
    any other text at its end."""
    if len(text) <= max_chars:
        return text
    room = max_chars - len(_ELLIPSIS)
    if room <= 0:
        return text[: max(0, max_chars)]
    if " " not in text:
        # The first separator that leaves a short enough tail leaves the longest one.
        parts = (match.end() for match in _SEPARATOR.finditer(text, len(text) - room - 1))
        start = next(parts, len(text))
        if len(text) - start >= room // 2:
            return _ELLIPSIS + text[start:]
    return text[:room] + _ELLIPSIS


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
