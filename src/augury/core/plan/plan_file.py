"""Plans as JSON files. A file may come from anywhere: nothing in it is believed unchecked."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import msgspec

from augury.core.enums import OpKind
from augury.core.errors import FileFormatError, InputError
from augury.core.files import load_whole, new_file
from augury.core.plan.plan import Mode, Plan
from augury.core.plan.plan_spec import verify_order

SCHEMA_VERSION = 1
MAX_FILE_BYTES = 256 << 20
MAX_RANKS = 1 << 20
_REMEDY = "make it anew with augury schedule -o"


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
    """Tells plans apart, wherever their files lie and however those are written."""
    return hashlib.sha256(encode_plan(plan)).hexdigest()


def decode_plan(content: bytes) -> Plan:
    try:
        document = msgspec.json.decode(content)
        if not isinstance(document, dict) or document.get("kind") != "augury-plan":
            raise FileFormatError("this is not a plan", remedy=_REMEDY)
        if document.get("schema_version") != SCHEMA_VERSION:
            raise FileFormatError(
                f"a plan of schema {document.get('schema_version')!r}", remedy=_REMEDY
            )
        plan = msgspec.convert(_with_numbers(document.get("plan")), Plan)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise FileFormatError(f"this is not a plan: {error}", remedy=_REMEDY) from error
    if not 1 <= plan.num_ranks <= MAX_RANKS:
        raise InputError(f"a plan for {plan.num_ranks} ranks", remedy=_REMEDY)
    if plan.mode is Mode.DDP_BUCKETS and not (
        plan.bucket_caps_bytes and min(plan.bucket_caps_bytes) > 0
    ):
        raise InputError("a plan for DDP's buckets without their sizes", remedy=_REMEDY)
    verify_order(plan.order, plan.problem)
    return plan


def _with_labels(plan: Plan) -> Any:
    """Kinds of operations by name: numbers mean nothing to who reads the file."""
    document = msgspec.to_builtins(plan)
    for piece in document["order"]["pieces"]:
        piece["op"] = OpKind(piece["op"]).label
    return document


def _with_numbers(document: Any) -> Any:
    order = document.get("order") if isinstance(document, dict) else None
    pieces = order.get("pieces") if isinstance(order, dict) else None
    for piece in pieces if isinstance(pieces, list) else []:
        if isinstance(piece, dict) and isinstance(piece.get("op"), str):
            kind = OpKind.__members__.get(piece["op"].upper())
            piece["op"] = int(kind) if kind is not None else -1
    return document
