"""Chooses a mutation that fits the format of a file, which is recognised by its content."""

from __future__ import annotations

import io
import json
import random
import zipfile
import zlib
from enum import StrEnum
from functools import cached_property
from typing import Any

from augury.core.graph.graph_file import MAGIC
from tests.mutated_files.byte_mutations import mutate_bytes, mutate_text
from tests.mutated_files.container_mutations import (
    gzip_bomb,
    mutate_graph,
    mutate_parquet,
    pack_zip,
    zip_bomb,
)
from tests.mutated_files.json_mutations import mutate_json

DAMAGED_SHARE = 0.2
"""Share of packed and sealed files of which bytes are changed without sealing them again."""
BOMB_SHARE = 0.02


class Format(StrEnum):
    GZIP = "gzip"
    ZIP = "zip"
    PARQUET = "parquet"
    GRAPH = "graph"
    JSON = "json"
    TEXT = "text"
    BINARY = "binary"


class Original:
    """A good file, taken apart once for many mutations of it."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    @cached_property
    def format(self) -> Format:
        for magic, found in (
            (b"\x1f\x8b", Format.GZIP),
            (b"PK\x03\x04", Format.ZIP),
            (b"PAR1", Format.PARQUET),
            (MAGIC, Format.GRAPH),
        ):
            if self.content.startswith(magic):
                return found
        if self.content.lstrip()[:1] in (b"{", b"["):
            return Format.JSON
        try:
            self.content.decode()
        except UnicodeDecodeError:
            return Format.BINARY
        return Format.BINARY if b"\0" in self.content else Format.TEXT

    @cached_property
    def unpacked(self) -> Original:
        return Original(zlib.decompress(self.content, 16 + zlib.MAX_WBITS))

    @cached_property
    def members(self) -> dict[str, Original]:
        with zipfile.ZipFile(io.BytesIO(self.content)) as archive:
            return {name: Original(archive.read(name)) for name in archive.namelist()}

    @cached_property
    def columns(self) -> dict[str, Any]:
        import polars

        frame = polars.read_parquet(io.BytesIO(self.content))
        return {name: frame[name] for name in frame.columns}

    @cached_property
    def document(self) -> Any:
        return json.loads(self.content)


def mutate(original: Original, dice: random.Random, pool: list[bytes]) -> bytes:
    """Returns a mutated copy; ``pool`` has files of all formats, to splice with."""
    kind = original.format
    if kind in (Format.TEXT, Format.BINARY):
        content = original.content
        change = mutate_text if kind == Format.TEXT else mutate_bytes
        for _ in range(dice.choice((1, 1, 2, 3))):
            content = change(content, dice, pool)
        return content
    if kind == Format.JSON:
        if dice.random() < 0.6:
            return mutate_json(original.document, dice)
        return mutate_text(original.content, dice, pool)
    share = dice.random()
    if share < DAMAGED_SHARE:
        return mutate_bytes(original.content, dice, pool)
    if kind == Format.PARQUET:
        return mutate_parquet(original.columns, dice)
    if kind == Format.GRAPH:
        return mutate_graph(original.content, dice)
    is_bomb = share < DAMAGED_SHARE + BOMB_SHARE
    if kind == Format.GZIP:
        if is_bomb:
            return original.content + gzip_bomb() if dice.random() < 0.5 else gzip_bomb()
        return _gzipped(mutate(original.unpacked, dice, pool))
    if is_bomb:
        return zip_bomb()
    chosen = dice.choice(sorted(original.members))
    members = {name: one.content for name, one in original.members.items()}
    return pack_zip(members | {chosen: mutate(original.members[chosen], dice, pool)}, dice)


def _gzipped(content: bytes) -> bytes:
    packer = zlib.compressobj(1, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
    return packer.compress(content) + packer.flush()
