"""Graph files with right checksums and wrong content."""

from __future__ import annotations

import json
import struct
import zlib
from pathlib import Path
from typing import Any

from augury.core.graph.graph_file import MAGIC, VERSION


class Forgery:
    """A good file taken apart, to be put together again with right checksums and wrong content."""

    def __init__(self, good: bytes) -> None:
        (size,) = struct.unpack_from("<I", good, len(MAGIC) + 4)
        begin = len(MAGIC) + 8
        self.header: dict[str, Any] = json.loads(good[begin : begin + size])
        at = begin + size + 4
        self.columns = []
        for section in self.header["sections"]:
            self.columns.append(good[at : at + section["stored_bytes"]])
            at += section["stored_bytes"]

    def section(self, name: str) -> dict[str, Any]:
        return next(s for s in self.header["sections"] if s["name"] == name)

    def put(self, name: str, data: bytes, **fields: Any) -> None:
        section = self.section(name)
        self.columns[self.header["sections"].index(section)] = data
        section.update({"stored_bytes": len(data), **fields})

    def write(self, path: Path, raw_header: bytes | None = None) -> None:
        path.write_bytes(self.content(raw_header))

    def content(self, raw_header: bytes | None = None) -> bytes:
        header = json.dumps(self.header).encode() if raw_header is None else raw_header
        return (
            MAGIC
            + struct.pack("<II", VERSION, len(header))
            + header
            + struct.pack("<I", zlib.crc32(header))
            + b"".join(self.columns)
        )
