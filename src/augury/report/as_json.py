"""Results as JSON: the same field names as the typed results, with a ``schema_version``."""

from __future__ import annotations

from typing import Any

from augury.report.result import SCHEMA_VERSION


def encode(result: Any) -> str:
    """One indented document; ``result`` is a Struct or plain data that holds Structs."""
    import msgspec

    return msgspec.json.format(msgspec.json.encode(result), indent=2).decode()


def encode_document(**fields: Any) -> str:
    """For answers too small to have a type of their own."""
    return encode({"schema_version": SCHEMA_VERSION, **fields})
