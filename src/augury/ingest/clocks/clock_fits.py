"""Fits offset and drift of one rank's clock: from handshakes, or from ends of collectives.

The exchanges with the shortest round trips give the offset to within half of the round trip. Those
at the start and at the end of a recording give the drift. A collective ends on all ranks at about
the same time: a robust line through the differences of ends is the other source.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from augury.core.trace.rank_record import Handshake
from augury.core.trace.trace import Clock

Ends = Mapping[tuple[int, int], int]
"""End of each collective, by (group, sequence), on a rank's own clock."""

_MIN_SPAN_NS = 500_000_000
"""Over a shorter time, drift is within the noise and does not matter."""
_USUAL_DRIFT = 150e-6
_MAX_DRIFT = 2_000e-6
_NEAR_NS = 20_000.0
"""Ends agree at least this well where both threads kept their cores."""
_END_TO_END_NS = 200_000.0
"""Smallest residual: the order of the ends of two ranks is unknown."""
_MAX_POINTS = 60
"""Number of points through which candidate lines are drawn; all points vote."""
_MAX_ENDS = 1_000
"""Number of collectives to which a line is fitted; more add time, but no precision."""
_NUM_SHORTEST = 5


def from_handshakes(handshakes: Sequence[Handshake]) -> Clock | None:
    """Uses the exchanges with the shortest round trips at each moment. The two directions may
    differ, so the residual is at least half of the shortest round trip."""
    moments: dict[str, list[tuple[int, int, int, int]]] = {}
    for handshake in handshakes:
        moments.setdefault(handshake.moment, []).extend(
            e for e in handshake.exchanges if e[3] - e[0] >= e[2] - e[1] >= 0
        )
    points: list[tuple[float, float]] = []
    used: list[tuple[NDArray[np.float64], NDArray[np.float64]]] = []
    half_trips: list[float] = []
    origin = min((e[0] for exchanges in moments.values() for e in exchanges), default=0)
    for exchanges in moments.values():
        if not exchanges:
            continue
        sent, heard, answered, back = np.array(exchanges, dtype=np.int64).T
        round_trip = (back - sent) - (answered - heard)
        shortest = np.argsort(round_trip, kind="stable")[:_NUM_SHORTEST]
        offset = ((heard - sent + answered - back) / 2.0)[shortest]
        at = ((sent - origin) / 2.0 + (back - origin) / 2.0)[shortest]
        points.append((float(np.median(at)), float(np.median(offset))))
        used.append((at, offset))
        half_trips.append(float(round_trip[shortest[0]]) / 2)
    if not points:
        return None
    points.sort()
    (first, at_first), (last, at_last) = points[0], points[-1]
    span = last - first
    drift = (at_last - at_first) / span if span >= _MIN_SPAN_NS else 0.0
    at, offset = (np.concatenate(columns) for columns in zip(*used, strict=True))
    residual = offset - (at_first + drift * (at - first))
    return Clock(
        offset_ns=round(at_first),
        drift_ppm=drift * 1e6,
        since_ns=origin + round(first),
        residual_ns=round(max(float(np.median(np.abs(residual))), *half_trips)),
        source="handshake",
    )


def from_collectives(own: Ends, other: Ends) -> Clock | None:
    """Nothing bounds the difference of ends on two ranks: the residual is their 90 % quantile."""
    shared = sorted(own.keys() & other.keys())
    if not shared:
        return None
    shared = shared[:: -(-len(shared) // _MAX_ENDS)]
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
    """Returns offset and drift of the line with the most points near it.

    Ends of collectives agree to microseconds where both threads kept their cores, and differ by
    milliseconds where one lost its core. So lines through pairs of points are tried, and points
    vote by their distance. A penalty on drift decides where points are few or noisy."""
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
    votes = (1 / (1 + away**2)).sum(axis=1) - 0.5 * (drift / _USUAL_DRIFT) ** 2
    best = int(votes.argmax())
    near = np.abs(away[best]) < 3
    level = offset[best] + float(np.median(y[near] - offset[best] - drift[best] * x[near]))
    return float(level), float(drift[best])


def _pairs(x: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Pairs of points far enough apart to determine a drift."""
    chosen = np.arange(len(x))[:: max(1, len(x) // _MAX_POINTS)]
    first, second = (chosen[index] for index in np.triu_indices(len(chosen), 1))
    apart = np.abs(x[second] - x[first]) > np.ptp(x) / 4
    return first[apart], second[apart]
