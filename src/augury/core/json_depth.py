"""Guards decoders of JSON against deep nesting, which overflows the stack of a process."""

from __future__ import annotations

import re
import sys

MAX_DEPTH = 500
"""Nesting of accepted text. Formats that Augury reads nest a dozen levels at most."""
SAFE_RECURSION_LIMIT = 3_000
"""Up to this limit, the interpreter ends the recursion of a decoder before the stack overflows.
Programs may have raised it."""

_STRING_OR_BRACKET = re.compile(rb'"(?:[^"\\]|\\.)*+"?|[\[{\]}]', re.DOTALL)


def bounded_depth(text: bytes) -> bytes:
    """Returns the text, or raises RecursionError if decoding it may overflow the stack."""
    if sys.getrecursionlimit() <= SAFE_RECURSION_LIMIT:
        return text
    if text.count(b"[") + text.count(b"{") <= MAX_DEPTH:
        return text
    depth = 0
    for match in _STRING_OR_BRACKET.finditer(text):
        first = match.group()[:1]
        if first in b"[{":
            depth += 1
            if depth > MAX_DEPTH:
                raise RecursionError(f"nested more than {MAX_DEPTH} levels deep")
        elif first in b"]}":
            depth -= 1
    return text
