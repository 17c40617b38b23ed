"""Encodes results as JSON with the field names of the structs and a ``schema_version``."""

from __future__ import annotations

import json
import re
from typing import Any

from augury.core.results.schema_version import SCHEMA_VERSION

_NOT_PLAIN = re.compile(r"[^\x00-\x7e]")


def encode(result: Any) -> str:
    """Returns an indented document; ``result`` is a Struct with a ``schema_version``."""
    import msgspec

    return _plain(msgspec.json.format(msgspec.json.encode(result), indent=2).decode())


def encode_document(**fields: Any) -> str:
    """Returns an indented document with these fields; values may be Structs."""
    return _plain(json.dumps(_versioned(fields), indent=2, default=_builtins))


def encode_line(**fields: Any) -> str:
    """Returns the document in one line, for results that follow other output."""
    return _plain(json.dumps(_versioned(fields), default=_builtins))


def fields_of(result: Any) -> dict[str, Any]:
    """Returns the fields of a Struct without its version; of None, no fields."""
    import msgspec

    found: dict[str, Any] = msgspec.to_builtins(result) if result is not None else {}
    found.pop("schema_version", None)
    return found


def _versioned(fields: dict[str, Any]) -> dict[str, Any]:
    return {"schema_version": SCHEMA_VERSION, **fields}


def _builtins(value: Any) -> Any:
    import msgspec

    return msgspec.to_builtins(value)


def _plain(text: str) -> str:
    """Escapes what is not ASCII, because JSON may be printed on a terminal."""
    return text if text.isascii() and "\x7f" not in text else _NOT_PLAIN.sub(_escaped, text)


def _escaped(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))
