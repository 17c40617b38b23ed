"""Mutations inside of containers, which are packed and sealed again: gzip, zip, Parquet, graphs."""

from __future__ import annotations

import gzip
import io
import random
import warnings
import zipfile
import zlib
from functools import cache
from typing import Any

import numpy as np

from tests.core.forged_graph import Forgery
from tests.mutated_files.byte_mutations import HOSTILE_WORDS
from tests.mutated_files.json_mutations import mutate_json

BOMB_BYTES = 48 << 20
MAX_ROWS = 3_000
"""Rows that a table grows to by copies of its rows."""


@cache
def gzip_bomb() -> bytes:
    return gzip.compress(b" " * BOMB_BYTES, 9)


@cache
def zip_bomb() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("rank0.json", b" " * BOMB_BYTES)
    return file.getvalue()


def pack_zip(members: dict[str, bytes], dice: random.Random) -> bytes:
    """Packs members; some archives have a name twice, or one that leads out of the target."""
    file = io.BytesIO()
    method = dice.choice((zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED))
    with warnings.catch_warnings(), zipfile.ZipFile(file, "w", method) as archive:
        warnings.simplefilter("ignore")
        for name, content in members.items():
            odd = dice.random()
            archive.writestr(f"../{name}" if odd < 0.03 else name, content)
            if odd > 0.97:
                archive.writestr(name, content)
    return file.getvalue()


def mutate_parquet(columns: dict[str, Any], dice: random.Random) -> bytes:
    """Writes a table with mutated columns. ``columns`` are polars series by name."""
    import polars

    found = dict(columns)
    for _ in range(dice.choice((1, 1, 2))):
        _edit_table(found, dice)
    frame = polars.DataFrame(found, strict=False)
    act = dice.random()
    if act < 0.1 and frame.height:
        frame = polars.concat([frame] * max(1, MAX_ROWS // frame.height // dice.choice((1, 8))))
    elif act < 0.2:
        frame = frame.head(dice.randint(0, frame.height))
    elif act < 0.3:
        frame = frame.sample(fraction=1, shuffle=True, seed=dice.randrange(1 << 30))
    file = io.BytesIO()
    method = dice.choice(("zstd", "snappy", "uncompressed"))
    frame.write_parquet(file, compression=method, statistics=dice.random() < 0.5)
    return file.getvalue()


def _edit_table(columns: dict[str, Any], dice: random.Random) -> None:
    import polars

    if not columns:
        return
    one, two = dice.choice(sorted(columns)), dice.choice(sorted(columns))
    series = columns[one]
    act = dice.randrange(9)
    if act == 0:
        columns[one], columns[two] = columns[two], columns[one]
    elif act == 1:
        del columns[one]
    elif act == 2:
        columns[one + "_"] = columns.pop(one)
    elif act == 3:
        columns[one] = polars.Series([None] * len(series), dtype=series.dtype)
    elif act == 4:
        wanted = dice.choice((polars.String, polars.Float64, polars.Int64, polars.Int8))
        columns[one] = series.cast(wanted, strict=False)
    elif act == 5:
        columns[one] = polars.Series([dice.choice(([], [1], None))] * len(series))
    elif len(series):
        values = series.to_list()
        for _ in range(dice.randint(1, 3)):
            values[dice.randrange(len(values))] = _value_like(series.dtype, dice)
        columns[one] = polars.Series(values, dtype=series.dtype, strict=False)


def _value_like(dtype: Any, dice: random.Random) -> Any:
    import polars

    if dtype == polars.String:
        return dice.choice(("", "x" * 5_000, "\0", "é", None, "forward-compute", "forward-recv"))
    if dtype.is_float():
        return dice.choice((-1.0, 1e300, float("nan"), float("inf"), 1e-300, None, 1e6, 1e12))
    if dtype.is_integer():
        return dice.choice((*HOSTILE_WORDS, 7, 255, None))
    return None


def mutate_graph(content: bytes, dice: random.Random) -> bytes:
    """Changes columns or the header of a graph file, and seals it with right checksums."""
    forged = Forgery(content)
    if dice.random() < 0.25:
        return forged.content(mutate_json(forged.header, dice))
    for _ in range(dice.choice((1, 1, 2, 3))):
        section = dice.choice(forged.header["sections"])
        raw = _raw(forged, section["name"])
        if not raw:
            continue
        width = len(raw) // section["count"]
        values = np.frombuffer(raw, dtype=f"<i{width}" if width in (1, 2, 4, 8) else "u1").copy()
        act = dice.randrange(3)
        if act == 0:
            wanted = [value for value in HOSTILE_WORDS if -(2 ** (8 * width - 1)) <= value]
            fitting = [value for value in wanted if value < 2 ** (8 * width - 1)]
            values[dice.randrange(len(values))] = dice.choice((*fitting, 2, 3, 5))
        elif act == 1:
            values = np.roll(values, dice.randint(1, 3))
        else:
            values = values[: dice.randint(0, len(values))]
        new = values.tobytes()
        forged.put(section["name"], new, packed=False, count=len(values), crc32=zlib.crc32(new))
    return forged.content()


def _raw(forged: Forgery, name: str) -> bytes:
    section = forged.section(name)
    data = forged.columns[forged.header["sections"].index(section)]
    return zlib.decompress(data) if section["packed"] else data
