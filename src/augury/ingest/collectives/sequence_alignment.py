"""Which collectives of several ranks are one, where profilers gave them no number.

Recordings start some collectives apart, so the n-th of one rank is not the n-th of another. The
sequences of two ranks are slid along each other; that place is right where the same things were
done and where they ended together. Starts say nothing: whoever came first waited."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from augury.core.columns import I8

MAX_SLIDE = 256
MAX_SPREAD_NS = 20_000_000
"""Ends of one collective lie within milliseconds of each other: beyond, they are not one."""
MAX_APART_NS = 60_000_000_000
"""No two hosts' clocks differ by a minute: beyond, it was another job."""
_SAME_CLOCK_NS = 5_000_000


@dataclass(frozen=True, slots=True)
class Sequenced:
    """What one rank did in one communicator, in order."""

    what: Sequence[tuple[object, ...]]
    """Kind, size, type: equal on all ranks for the same collective."""
    end_ns: I8
    number: Sequence[int | None] = ()
    """As the profiler numbered them, if it did."""


@dataclass(frozen=True, slots=True)
class Match:
    """The i-th of the rank is the (i + ``slide``)-th of the reference."""

    slide: int
    spread_ns: int
    """How far the ends of what is matched lie apart, beside a constant: the median."""
    apart_ns: int
    """That constant."""

    @property
    def doubt(self) -> str:
        """Why it cannot be; empty where it can."""
        if self.apart_ns > MAX_APART_NS:
            return f"they lie {self.apart_ns / 1e9:,.0f} s apart"
        if self.spread_ns > MAX_SPREAD_NS:
            return f"their ends vary by {self.spread_ns / 1e6:,.0f} ms"
        return ""


def slide(own: Sequenced, reference: Sequenced) -> Match | None:
    """None where nothing that both did fits."""
    tried = []
    for by in _slides(own, reference):
        low, high = max(0, -by), min(len(own.what), len(reference.what) - by)
        if high <= low:
            continue
        pairs = range(low, high)
        if sum(own.what[i] != reference.what[i + by] for i in pairs) > len(pairs) // 20:
            continue
        gap = reference.end_ns[low + by : high + by] - own.end_ns[low:high]
        middle = int(np.median(gap))
        spread = int(np.median(np.abs(gap - middle)))
        tried.append((by, high - low, abs(middle), spread))
    # Few that overlap fit anything.
    most = max((size for _, size, _, _ in tried), default=0)
    tried = [entry for entry in tried if 2 * entry[1] >= most]
    if not tried:
        return None
    # Steps look alike: with one clock the ends themselves tell which step it is.
    nearest = min(tried, key=lambda entry: entry[2] + entry[3])
    if nearest[2] + nearest[3] <= _SAME_CLOCK_NS:
        return Match(nearest[0], nearest[3], nearest[2])
    best = min(tried, key=lambda entry: (entry[3], -entry[1], entry[2]))
    return Match(best[0], best[3], best[2])


def _slides(own: Sequenced, reference: Sequenced) -> list[int]:
    """Only one, if the profiler numbered them."""
    theirs = {number: i for i, number in enumerate(reference.number) if number is not None}
    apart = Counter(
        theirs[number] - i
        for i, number in enumerate(own.number)
        if number is not None and number in theirs
    )
    if apart:
        return [apart.most_common(1)[0][0]]
    reach = min(MAX_SLIDE, max(len(own.what), len(reference.what)))
    return list(range(-reach, reach + 1))
