"""The line that one rank's clock is: from handshakes, or from collectives' ends alone.

A handshake's exchanges with the shortest way there and back tell the offset to half of that way;
those at the start and the end of a recording give the drift. Collectives end on all ranks at about
the same time, whenever each came: a line through the differences of their ends, robust against
those that ended late on one side, is the other source.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from augury.core.trace.rank_record import Handshake
from augury.core.trace.trace import Clock

Ends = Mapping[tuple[int, int], int]
"""When each collective, by (group, sequence), ended by a rank's own clock."""

_MIN_SPAN_NS = 500_000_000
"""Over less, drift cannot be told from noise, and does not matter."""
_USUAL_DRIFT = 150e-6
_MAX_DRIFT = 2_000e-6
_NEAR_NS = 20_000.0
"""Ends of threads that kept their cores agree at least that well."""
_END_TO_END_NS = 200_000.0
"""But which rank's comes first, and by how much, nobody knows: they are never believed to more."""
_MOST_POINTS = 60
"""Through which lines are tried; all others are counted."""
_SHORTEST = 5


def from_handshakes(handshakes: Sequence[Handshake]) -> Clock | None:
    """Only exchanges that were hardly longer on the way than the shortest are believed. The two
    directions may differ: the residual is at least half the shortest way there and back."""
    moments: dict[str, list[tuple[int, int, int, int]]] = {}
    for handshake in handshakes:
        moments.setdefault(handshake.moment, []).extend(
            e for e in handshake.exchanges if e[3] - e[0] >= e[2] - e[1] >= 0
        )
    points: list[tuple[float, float]] = []
    believed: list[tuple[NDArray[np.float64], NDArray[np.float64]]] = []
    half_ways: list[float] = []
    origin = min((e[0] for exchanges in moments.values() for e in exchanges), default=0)
    for exchanges in moments.values():
        if not exchanges:
            continue
        asked, heard, answered, back = np.array(exchanges, dtype=np.int64).T
        way = (back - asked) - (answered - heard)
        shortest = np.argsort(way, kind="stable")[:_SHORTEST]
        offset = ((heard - asked + answered - back) / 2.0)[shortest]
        at = ((asked - origin) / 2.0 + (back - origin) / 2.0)[shortest]
        points.append((float(np.median(at)), float(np.median(offset))))
        believed.append((at, offset))
        half_ways.append(float(way[shortest[0]]) / 2)
    if not points:
        return None
    points.sort()
    (first, at_first), (last, at_last) = points[0], points[-1]
    span = last - first
    drift = (at_last - at_first) / span if span >= _MIN_SPAN_NS else 0.0
    at, offset = (np.concatenate(columns) for columns in zip(*believed, strict=True))
    residual = offset - (at_first + drift * (at - first))
    return Clock(
        offset_ns=round(at_first),
        drift_ppm=drift * 1e6,
        since_ns=origin + round(first),
        residual_ns=round(max(float(np.median(np.abs(residual))), *half_ways)),
        source="handshake",
    )


def from_collectives(own: Ends, other: Ends) -> Clock | None:
    """Nothing bounds how far apart two ranks see an end: the residual is what nine of ten keep."""
    shared = sorted(own.keys() & other.keys())
    if not shared:
        return None
    at = np.array([own[key] for key in shared], dtype=np.int64)
    gap = np.array([other[key] for key in shared], dtype=np.int64) - at
    origin, level = int(at.min()), int(np.median(gap))
    x = (at - origin).astype(np.float64)
    y = (gap - level).astype(np.float64)
    offset, drift = robust_line(x, y)
    away = np.abs(y - offset - drift * x)
    return Clock(
        offset_ns=level + round(offset),
        drift_ppm=drift * 1e6,
        since_ns=origin,
        residual_ns=round(max(_END_TO_END_NS, float(np.quantile(away, 0.9)))),
        source="collectives",
    )


def robust_line(x: NDArray[np.float64], y: NDArray[np.float64]) -> tuple[float, float]:
    """The line on which most points lie close together: ends of collectives agree to microseconds
    where both threads kept their cores, and lie anywhere, for milliseconds, where one lost it. So
    lines through pairs of points are tried, and the one with the most company is taken. Few or
    noisy points do not outweigh what is known of clocks before, which is that they hardly drift."""
    if len(x) < 8 or np.ptp(x) < _MIN_SPAN_NS:
        return float(np.median(y)), 0.0
    scale = max(_NEAR_NS, float(np.median(np.abs(y - np.median(y)))) / 20)
    first, second = _pairs(x)
    drift = (y[second] - y[first]) / (x[second] - x[first])
    kept = np.abs(drift) < _MAX_DRIFT
    drift = np.concatenate([np.zeros(len(y)), drift[kept]])
    through = np.concatenate([np.arange(len(y)), first[kept]])
    offset = y[through] - drift * x[through]
    away = (y[None, :] - offset[:, None] - drift[:, None] * x[None, :]) / scale
    company = (1 / (1 + away**2)).sum(axis=1) - 0.5 * (drift / _USUAL_DRIFT) ** 2
    best = int(company.argmax())
    near = np.abs(away[best]) < 3
    level = offset[best] + float(np.median(y[near] - offset[best] - drift[best] * x[near]))
    return float(level), float(drift[best])


def _pairs(x: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Points far enough apart that the line through them says something of the drift."""
    chosen = np.arange(len(x))[:: max(1, len(x) // _MOST_POINTS)]
    first, second = (chosen[index] for index in np.triu_indices(len(chosen), 1))
    apart = np.abs(x[second] - x[first]) > np.ptp(x) / 4
    return first[apart], second[apart]
