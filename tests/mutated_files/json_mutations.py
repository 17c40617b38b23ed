"""Mutations of JSON documents: values of other types, keys twice, deep nesting, long lists."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

DEPTHS = (50, 1_000, 20_000)
NUM_COPIES = (2, 3, 300)
WRONG: tuple[Any, ...] = (
    None, True, False, -1, 0, 1, 2**31, -(2**31), 2**32, 2**53 + 1, 2**63 - 1, 2**63, -(2**63) - 1,
    2**64, 10**40, 1e300, -1e300, 1e-300, 0.5, float("nan"), float("inf"), float("-inf"), "x", "",
    "1", "\ud800", "\0", "é" * 100, "a" * 5_000, [], {}, [[1]], [[-1] * 7], [None], {"": None},
    [0] * 300, [[[]]], {"a": {"b": []}}, "rank0", "0,1,2", "1e999",
)  # fmt: skip
"""Values that replace others, whatever their type."""


def spoil(value: Any, dice: random.Random) -> Any:
    """Replaces one random value in the document."""
    return edit(value, dice, lambda _: dice.choice(WRONG))


def edit(value: Any, dice: random.Random, change: Callable[[Any], Any]) -> Any:
    """Changes one random value in the document; the document itself is not changed."""
    if isinstance(value, dict) and value and dice.random() < 0.93:
        key = dice.choice(sorted(value))
        return value | {key: edit(value[key], dice, change)}
    if isinstance(value, list) and value and dice.random() < 0.93:
        at = dice.randrange(len(value))
        return [*value[:at], edit(value[at], dice, change), *value[at + 1 :]]
    return change(value)


def mutate_json(document: Any, dice: random.Random) -> bytes:
    """Returns the text of a mutated document; not all of them are still JSON."""
    for _ in range(dice.choice((1, 1, 2, 3))):
        document = edit(document, dice, _change(dice))
    text = json.dumps(document)
    shape = dice.random()
    if shape < 0.05:
        return _nested(text, dice)
    if shape < 0.12:
        return _with_a_key_twice(text, dice)
    return text.encode("utf-8", "surrogatepass")


def _change(dice: random.Random) -> Callable[[Any], Any]:
    act = dice.random()
    if act < 0.55:
        return lambda _: dice.choice(WRONG)
    return lambda value: _edited(value, dice)


def _edited(value: Any, dice: random.Random) -> Any:
    """Edits within the type of a value; containers lose, repeat and reorder their parts."""
    if isinstance(value, bool) or value is None:
        return dice.choice((True, False, None, 0))
    if isinstance(value, int | float):
        return _another_number(value, dice)
    if isinstance(value, str):
        return dice.choice((value[::-1], value + value, value[1:], value.upper(), value + "\0"))
    if isinstance(value, list) and value:
        at = dice.randrange(len(value))
        act = dice.randrange(4)
        if act == 0:
            return [*value[:at], *value[at + 1 :]]
        if act == 1:
            return [*value[:at], *([value[at]] * dice.choice(NUM_COPIES)), *value[at:]]
        if act == 2:
            return dice.sample(value, len(value))
        return value[:at]
    if isinstance(value, dict) and value:
        one, two = dice.choice(sorted(value)), dice.choice(sorted(value))
        act = dice.randrange(3)
        if act == 0:
            return {key: item for key, item in value.items() if key != one}
        if act == 1:
            return value | {one: value[two], two: value[one]}
        return value | {one + "s": value[one]}
    return [value]


def _another_number(value: float, dice: random.Random) -> Any:
    try:
        return dice.choice(
            (value + 1, value - 1, -value, value * 2, value * 1000, value // 2, 0, value + 0.5)
        )
    except OverflowError:
        return 0


def _nested(text: str, dice: random.Random) -> bytes:
    """Puts deep nesting in the place of one value."""
    depth = dice.choice(DEPTHS)
    opening, closing = dice.choice((("[", "]"), ('{"a":', "}")))
    inner = opening * depth + "1" + (closing * depth if dice.random() < 0.8 else "")
    places = [at for at, mark in enumerate(text) if mark in ":,["]
    at = dice.choice(places) + 1 if places else 0
    comma = "," if at and text[at - 1] in ",[" else ""
    return f"{text[:at]}{inner}{comma}{text[at:]}".encode("utf-8", "surrogatepass")


def _with_a_key_twice(text: str, dice: random.Random) -> bytes:
    starts = [at for at, mark in enumerate(text) if mark == "{"]
    keys = [part for part in text.split('"')[1::2] if part] or ["a"]
    if not starts:
        return text.encode("utf-8", "surrogatepass")
    at = dice.choice(starts) + 1
    value = json.dumps(dice.choice(WRONG))
    twice = f'"{dice.choice(keys)}": {value}, ' * 2
    end = text[at:].lstrip()[:1]
    return f"{text[:at]}{twice[:-2] if end == '}' else twice}{text[at:]}".encode(
        "utf-8", "surrogatepass"
    )
