"""Reads and writes scheduling Problems as JSON files, with every field validated."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec

from augury.core.errors import FileFormatError, InputError
from augury.core.files import load_whole, new_file
from augury.core.json_depth import bounded_depth
from augury.core.plan.problem import Problem

SCHEMA_VERSION = 1
KIND = "augury-problem"
MAX_FILE_BYTES = 64 << 20
MAX_GRADIENTS = 1 << 17
MAX_RANKS = 1 << 20
_REMEDY = "see docs/cli.md for the format, or write one with `augury schedule --problem`"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stated:
    """A problem with its number of ranks, which a plan needs."""

    problem: Problem
    num_ranks: int = 2


def save_problem(stated: Stated, path: Path, *, force: bool = False) -> None:
    with new_file(path, force=force) as file:
        file.write(encode_problem(stated) + b"\n")


def load_problem(path: Path) -> Stated:
    return load_whole(
        path, decode_problem, what="problem", max_bytes=MAX_FILE_BYTES, remedy=_REMEDY
    )


def encode_problem(stated: Stated) -> bytes:
    document = {"kind": KIND, "schema_version": SCHEMA_VERSION, **msgspec.to_builtins(stated)}
    return msgspec.json.format(msgspec.json.encode(document), indent=1)


def decode_problem(content: bytes) -> Stated:
    try:
        document = msgspec.json.decode(bounded_depth(content))
        if not isinstance(document, dict) or document.get("kind") != KIND:
            raise FileFormatError("this is not a scheduling problem", remedy=_REMEDY)
        if document.get("schema_version") != SCHEMA_VERSION:
            raise FileFormatError(
                f"unknown schema version {document.get('schema_version')!r} of a problem",
                remedy=_REMEDY,
            )
        stated = msgspec.convert(document, Stated)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise FileFormatError(
            f"this is not a scheduling problem: {error}", remedy=_REMEDY
        ) from error
    if not 1 <= stated.num_ranks <= MAX_RANKS:
        raise InputError(f"the problem is for {stated.num_ranks} ranks", remedy=_REMEDY)
    if len(stated.problem.gradients) > MAX_GRADIENTS:
        raise InputError(
            f"the problem has {len(stated.problem.gradients):,} gradients", remedy=_REMEDY
        )
    return stated
