"""Reads and writes plans as JSON files, with every field validated."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import msgspec

from augury.core.enums import OpKind
from augury.core.errors import FileFormatError
from augury.core.files import load_whole, new_file
from augury.core.json_depth import bounded_depth
from augury.core.plan.plan import SECTIONS, Plan
from augury.core.plan.plan_spec import verify_plan

SCHEMA_VERSION = 2
MAX_FILE_BYTES = 256 << 20
_REMEDY = "run `augury schedule RUN -o plan.json` again"
_FIELDS = frozenset(field.name for field in fields(Plan))
_SECTION_FIELDS = {
    name.value: frozenset(field.name for field in fields(kind)) for name, kind in SECTIONS.items()
}


def save_plan(plan: Plan, path: Path, *, force: bool = False) -> None:
    with new_file(path, force=force) as file:
        file.write(encode_plan(plan) + b"\n")


def load_plan(path: Path) -> Plan:
    return load_whole(path, decode_plan, what="plan", max_bytes=MAX_FILE_BYTES, remedy=_REMEDY)


def encode_plan(plan: Plan) -> bytes:
    encoded: bytes = msgspec.json.encode(
        {"kind": "augury-plan", "schema_version": SCHEMA_VERSION, "plan": _with_labels(plan)}
    )
    return encoded


def plan_digest(plan: Plan) -> str:
    """Returns a digest of the plan's content, equal for files that differ only in layout."""
    return hashlib.sha256(encode_plan(plan)).hexdigest()


def decode_plan(content: bytes) -> Plan:
    try:
        document = msgspec.json.decode(bounded_depth(content))
        if not isinstance(document, dict) or document.get("kind") != "augury-plan":
            raise FileFormatError("this is not a plan", remedy=_REMEDY)
        _require_version(document.get("schema_version"))
        _require_known_fields(document.get("plan"))
        plan = msgspec.convert(_with_numbers(document.get("plan")), Plan)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise FileFormatError(f"this is not a plan: {error}", remedy=_REMEDY) from error
    verify_plan(plan)
    return plan


def _require_version(version: object) -> None:
    if version == SCHEMA_VERSION:
        return
    is_older = type(version) is int and version < SCHEMA_VERSION
    by = "an older Augury" if is_older else "another version of Augury"
    raise FileFormatError(f"schema version {version!r}: made by {by}", remedy=_REMEDY)


def _require_known_fields(plan: object) -> None:
    """Refuses sections that this version does not know: they would be dropped silently."""
    if not isinstance(plan, dict):
        return
    _refuse_others(plan, _FIELDS, "the plan")
    for name, known in _SECTION_FIELDS.items():
        if isinstance(section := plan.get(name), dict):
            _refuse_others(section, known, f"section {name}")


def _refuse_others(document: dict[str, Any], known: Iterable[str], what: str) -> None:
    unknown = sorted(set(document) - set(known))
    if unknown:
        raise FileFormatError(f"{what} has an unknown field {unknown[0]!r:.80}", remedy=_REMEDY)


def _with_labels(plan: Plan) -> Any:
    """Returns the plan as builtins, with the kinds of operations by name."""
    document = msgspec.to_builtins(plan)
    if plan.memory_limit_bytes is None:
        del document["memory_limit_bytes"]  # digests of plans without a limit stay as they were
    for piece in _pieces(document):
        piece["op"] = OpKind(piece["op"]).label
    return document


def _with_numbers(document: Any) -> Any:
    for piece in _pieces(document):
        if isinstance(piece, dict) and isinstance(piece.get("op"), str):
            kind = OpKind.__members__.get(piece["op"].upper())
            piece["op"] = int(kind) if kind is not None else -1
    return document


def _pieces(document: Any) -> Sequence[Any]:
    for name in ("communication", "order", "pieces"):
        document = document.get(name) if isinstance(document, dict) else None
    return document if isinstance(document, list | tuple) else ()
