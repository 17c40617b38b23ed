"""Side-by-side measurements: the compared functions alternate in one process;
medians are reported."""

from __future__ import annotations

import ctypes
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

Work = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Bound:
    value: float
    is_upper: bool

    def holds(self, value: float) -> bool:
        return value <= self.value if self.is_upper else value >= self.value

    def __str__(self) -> str:
        return f"{'<=' if self.is_upper else '>='} {self.value:g}"


@dataclass(frozen=True, slots=True)
class Ratio:
    """Ratio of two medians; ``low`` and ``high`` are the extremes over the rounds."""

    value: float
    low: float
    high: float

    def scaled(self, factor: float) -> Ratio:
        return Ratio(self.value * factor, self.low * factor, self.high * factor)


def at_most(value: float) -> Bound:
    return Bound(value, is_upper=True)


def at_least(value: float) -> Bound:
    return Bound(value, is_upper=False)


def ratio(numerator: Work, denominator: Work, *, rounds: int) -> Ratio:
    """Returns the ratio of the CPU times of two functions that run in alternation."""
    pairs = [(cpu_seconds(numerator), cpu_seconds(denominator)) for _ in range(rounds)]
    over = statistics.median(a for a, _ in pairs)
    under = statistics.median(b for _, b in pairs)
    each = [a / b for a, b in pairs]
    return Ratio(over / under, min(each), max(each))


def ten_times(work: Work) -> Work:
    """Repeats short work ten times per measurement."""
    return lambda: [work() for _ in range(10)]


def cpu_seconds(work: Work) -> float:
    begin = time.process_time()
    work()
    return time.process_time() - begin


def cpu_seconds_of_command(*arguments: str, rounds: int = 7) -> float:
    """Median user and system time of a fresh process over ``rounds``."""
    spent = []
    for _ in range(rounds):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(arguments, check=True, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent.append(after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
    return statistics.median(spent)


def extra_bytes_at_peak(work: Work) -> int:
    """Peak resident memory during ``work``, minus the memory that was resident before."""
    ctypes.CDLL(None).malloc_trim(
        0
    )  # return free memory of earlier work to the system, so that reuse does not hide growth
    Path("/proc/self/clear_refs").write_text("5")  # reset the peak counter
    before = _status_bytes("VmRSS")
    work()
    return _status_bytes("VmHWM") - before


def _status_bytes(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise LookupError(field)


def report(name: str, value: float, unit: str, bound: Bound | None, **details: object) -> bool:
    """Prints one JSON line. Returns False if the bound is violated."""
    holds = bound is None or bound.holds(value)
    line = {"name": name, "value": round(value, 3), "unit": unit}
    if bound is not None:
        line |= {"bound": str(bound), "holds": holds}
    print(json.dumps(line | details), flush=True)
    return holds


def report_worse(name: str, found: dict[str, Ratio], unit: str, bound: Bound | None = None) -> bool:
    """Reports the worst of several graph styles. Returns False if its bound is violated."""
    is_upper = bound is None or bound.is_upper
    worst = (max if is_upper else min)(found, key=lambda style: found[style].value)
    return report(
        name,
        found[worst].value,
        unit,
        bound,
        worse=worst,
        low=round(found[worst].low, 3),
        high=round(found[worst].high, 3),
        **{style: round(measured.value, 3) for style, measured in found.items()},
    )


def say(text: str) -> None:
    """Prints progress to stderr, separate from the results."""
    if sys.stderr.isatty() or os.environ.get("AUGURY_BENCH_VERBOSE"):
        print(text, file=sys.stderr, flush=True)
