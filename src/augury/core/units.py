"""Parsing and formatting of times, sizes and bandwidths; internal units are ns and bytes."""

from __future__ import annotations

import re

from augury.core.errors import UsageError

NS_PER_US = 1_000
NS_PER_MS = 1_000_000
NS_PER_S = 1_000_000_000

_TIME_UNITS = {"ns": 1, "us": NS_PER_US, "µs": NS_PER_US, "ms": NS_PER_MS, "s": NS_PER_S}
_BYTE_UNITS = {
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
}
_BIT_UNITS = {"bit": 1, "kbit": 10**3, "mbit": 10**6, "gbit": 10**9, "tbit": 10**12}
_QUANTITY = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Zµ/]*)\s*")


def format_ns(value_ns: float) -> str:
    """Formats with three significant digits and a readable unit."""
    magnitude = abs(value_ns)
    for unit, scale in (("s", NS_PER_S), ("ms", NS_PER_MS), ("us", NS_PER_US)):
        if magnitude >= scale:
            return f"{_three_digits(value_ns / scale)} {unit}"
    return f"{value_ns:.0f} ns"


def format_bytes(value_bytes: float) -> str:
    magnitude = abs(value_bytes)
    for unit, scale in (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if magnitude >= scale:
            return f"{_three_digits(value_bytes / scale)} {unit}"
    return f"{value_bytes:.0f} B"


def format_percent(value: float, *, signed: bool = False) -> str:
    value = round(value, 1) + 0.0  # no minus before a zero
    return f"{value:+.1f} %" if signed else f"{value:.1f} %"


def format_count(number: int, noun: str, plural: str | None = None) -> str:
    """Returns the number with its noun, such as ``1 rank`` or ``2 ranks``."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def parse_time_ns(text: str) -> int:
    """Parses a time such as ``50us`` or ``1.5 ms``; a bare number is nanoseconds."""
    return _whole(_parse(text, _TIME_UNITS, default="ns", example="50us"), text)


def parse_bytes(text: str) -> int:
    """Parses a size such as ``25MB`` (decimal) or ``25MiB`` (binary); a bare number is bytes."""
    return _whole(_parse(text, _BYTE_UNITS, default="b", example="25MB"), text)


def parse_bandwidth(text: str) -> int:
    """Parses a bandwidth such as ``10Gbit/s`` or ``1.25GB/s`` into bytes per second."""
    match = _QUANTITY.fullmatch(text)
    unit = match.group(2) if match else ""
    amount = unit.removesuffix("ps").removesuffix("/s")
    if amount != unit and amount.endswith("b"):
        # A lower-case b means bits, a capital one bytes: a factor of eight.
        amount += "it"
    if match and amount.lower() in _BIT_UNITS:
        value = float(match.group(1)) * _BIT_UNITS[amount.lower()] / 8
    elif match and amount != unit and amount.lower() in _BYTE_UNITS:
        value = float(match.group(1)) * _BYTE_UNITS[amount.lower()]
    else:
        raise UsageError(f"{text!r} is not a bandwidth", remedy="write it as 10Gbit/s or 1.25GB/s")
    if value < 1:
        raise UsageError(f"a bandwidth of {text!r} is zero", remedy="give at least 8bit/s")
    return _whole(value, text)


def parse_percent(text: str) -> float:
    """Parses a share such as ``3%`` or ``2.5``, in percent."""
    match = _QUANTITY.fullmatch(text.rstrip().removesuffix("%"))
    if match is None or match.group(2):
        raise UsageError(f"{text!r} is not a percentage", remedy="write it as 3% or 2.5")
    return float(match.group(1))


def parse_ranks(ranks: str | None) -> tuple[int, ...] | None:
    """Returns the ranks that a text such as ``0,3-5`` names; None means all ranks."""
    if ranks is None:
        return None
    chosen: set[int] = set()
    for part in ranks.split(","):
        first, is_range, last = part.partition("-")
        low, high = _parse_rank(first), _parse_rank(last if is_range else first)
        if low is None or high is None or low > high:
            raise UsageError(
                f"{ranks!r} does not name ranks", remedy="write them as 0,3-5, each below 1000000"
            )
        chosen.update(range(low, high + 1))
    return tuple(sorted(chosen))


def _parse_rank(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 6 else None


def _parse(text: str, units: dict[str, int], *, default: str, example: str) -> float:
    match = _QUANTITY.fullmatch(text)
    scale = units.get(match.group(2).lower() or default) if match else None
    if match is None or scale is None:
        known = ", ".join(units)
        raise UsageError(f"{text!r} is not a quantity in {known}", remedy=f"write it as {example}")
    return float(match.group(1)) * scale


def _whole(value: float, text: str) -> int:
    """Rounds to an integer that fits a column of 64 bits."""
    if value >= 2**63:
        raise UsageError(f"{text[:40]!r} is too large", remedy="check the unit")
    return round(value)


def _three_digits(value: float) -> str:
    magnitude = abs(value)
    return f"{value:.0f}" if magnitude >= 100 else f"{value:.3g}"
