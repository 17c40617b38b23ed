"""Mutations of bytes and of lines of text, whatever their meaning."""

from __future__ import annotations

import random
import re
import struct

HOSTILE_NUMBERS = (
    "0", "-1", "1", "-0.0", "1e999", "-1e999", "1e-999", "1e308", "NaN", "Infinity", "-Infinity",
    "2147483647", "2147483648", "-2147483649", "4294967296", "9223372036854775807",
    "9223372036854775808", "-9223372036854775809", "18446744073709551616", "1" * 60, "0.5",
    "1e15", "1e18", "3000000000000000", "0x10", "1_000", "٣", "", "null", "true", '"x"', "[]", "{}",
)  # fmt: skip
HOSTILE_WORDS = (0, 1, -1, 2**31 - 1, -(2**31), 2**32, 2**62, 2**63 - 1, -(2**63), 10**18)
MAX_REPEATS = 2_000
_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")


def mutate_bytes(content: bytes, dice: random.Random, pool: list[bytes]) -> bytes:
    return dice.choice(_BINARY)(content, dice, pool)


def mutate_text(content: bytes, dice: random.Random, pool: list[bytes]) -> bytes:
    return dice.choice(_TEXT)(content, dice, pool)


def flip(content: bytes, dice: random.Random, _pool: list[bytes]) -> bytes:
    data = bytearray(content or b"\0")
    for _ in range(dice.randint(1, 4)):
        data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
    return bytes(data)


def set_bytes(content: bytes, dice: random.Random, _pool: list[bytes]) -> bytes:
    data = bytearray(content or b"\0")
    for _ in range(dice.randint(1, 4)):
        data[dice.randrange(len(data))] = dice.randrange(256)
    return bytes(data)


def set_word(content: bytes, dice: random.Random, _pool: list[bytes]) -> bytes:
    """Sets an aligned integer, as binary headers and rows have them."""
    data = bytearray(content.ljust(8, b"\0"))
    value = dice.choice(HOSTILE_WORDS)
    packed = struct.pack("<q", value) if dice.random() < 0.7 else struct.pack("<q", value)[:4]
    at = dice.randrange(len(data) - len(packed) + 1) & ~3
    data[at : at + len(packed)] = packed
    return bytes(data)


def truncate(content: bytes, dice: random.Random, _pool: list[bytes]) -> bytes:
    return content[: dice.randint(0, len(content))]


def cut_out(content: bytes, dice: random.Random, _pool: list[bytes]) -> bytes:
    first, last = sorted(dice.randint(0, len(content)) for _ in range(2))
    return content[:first] + content[last:]


def repeat(content: bytes, dice: random.Random, _pool: list[bytes]) -> bytes:
    first = dice.randint(0, len(content))
    part = content[first : first + dice.randint(1, 64)]
    return content[:first] + part * dice.choice((2, 3, 100, MAX_REPEATS)) + content[first:]


def insert_junk(content: bytes, dice: random.Random, _pool: list[bytes]) -> bytes:
    at = dice.randint(0, len(content))
    return content[:at] + dice.randbytes(dice.randint(1, 40)) + content[at:]


def splice(content: bytes, dice: random.Random, pool: list[bytes]) -> bytes:
    """Joins the head of this file with the tail of another, perhaps of another format."""
    other = dice.choice(pool)
    return content[: dice.randint(0, len(content))] + other[dice.randint(0, len(other)) :]


def edit_number(content: bytes, dice: random.Random, _pool: list[bytes]) -> bytes:
    found = list(_NUMBER.finditer(content))
    for number in sorted(
        dice.sample(found, min(len(found), dice.randint(1, 3))), key=lambda m: -m.start()
    ):
        new = dice.choice(HOSTILE_NUMBERS).encode()
        content = content[: number.start()] + new + content[number.end() :]
    return content


def edit_lines(content: bytes, dice: random.Random, _pool: list[bytes]) -> bytes:
    """Removes, repeats or swaps lines."""
    lines = content.splitlines(keepends=True) or [b""]
    at, other = dice.randrange(len(lines)), dice.randrange(len(lines))
    act = dice.randrange(3)
    if act == 0:
        del lines[at]
    elif act == 1:
        lines[at:at] = [lines[other]] * dice.choice((1, 2, MAX_REPEATS // 10))
    else:
        lines[at], lines[other] = lines[other], lines[at]
    return b"".join(lines)


def swap_cells(content: bytes, dice: random.Random, _pool: list[bytes]) -> bytes:
    """Swaps two columns of all lines of a table."""
    lines = content.splitlines()
    mark = b"," if b"," in content else None
    width = len(lines[0].split(mark)) if lines else 0
    if width < 2:
        return content
    one, two = dice.randrange(width), dice.randrange(width)
    found = []
    for line in lines:
        cells = line.split(mark)
        if max(one, two) < len(cells):
            cells[one], cells[two] = cells[two], cells[one]
        found.append((mark or b" ").join(cells))
    return b"\n".join(found)


_BINARY = (
    flip, flip, set_bytes, set_word, set_word, set_word, truncate, cut_out, repeat, insert_junk,
    splice,
)  # fmt: skip
_TEXT = (
    flip, set_bytes, truncate, cut_out, repeat, insert_junk, splice, edit_number, edit_number,
    edit_number, edit_lines, swap_cells,
)  # fmt: skip
