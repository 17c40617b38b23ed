"""Leads all ranks' clocks to the first one's: from handshakes, or from collectives' ends alone.

A clock is a line: offset and drift. A handshake's exchanges with the shortest way there and back
tell the offset to half of that way; those at the start and the end of a recording give the drift.
Collectives end on all ranks at about the same time, whenever each came: a line through the
differences of their ends, robust against those that ended late on one side, is the other source.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from augury.core.errors import InputError
from augury.core.ledger import Ledger, Severity
from augury.core.table import I8
from augury.core.trace import Clock
from augury.ingest.rank_record import Handshake

Source = Literal["auto", "handshake", "collectives"]
Ends = Mapping[tuple[int, int], int]
"""When each collective, by (group, sequence), ended by a rank's own clock."""

ONE_CLOCK_NS = {"handshake": 500_000, "collectives": 2_000_000}
"""Ranks whose host has one name, and whose clocks seem no further apart, have one clock."""
IMPLAUSIBLE_NS = 20_000_000
"""Ends of one collective lie closer together than that, else something else was compared."""
_MIN_SPAN_NS = 500_000_000
"""Over less, drift cannot be told from noise, and does not matter."""
_USUAL_DRIFT = 150e-6
_MAX_DRIFT = 2_000e-6
_NEAR_NS = 20_000.0
"""Ends of threads that kept their cores agree at least that well."""
_MOST_POINTS = 60
"""Through which lines are tried; all others are counted."""
_SHORTEST = 5
_MAX_OFFSET_NS = 10**17


def align(
    hosts: Mapping[int, str],
    handshakes: Mapping[int, Sequence[Handshake]],
    ends: Mapping[int, Ends],
    ledger: Ledger,
    *,
    source: Source = "auto",
) -> dict[int, Clock]:
    """For every rank of ``hosts``, how to lead its own clock to that of the lowest one."""
    reference = min(hosts)
    fitted: dict[int, Clock | None] = {}
    for rank in sorted(hosts):
        fitted[rank] = (
            Clock()
            if rank == reference
            else _fit(handshakes.get(rank, ()), reference, ends, rank, source)
        )
    clocks: dict[int, Clock] = {}
    for host in dict.fromkeys(hosts[rank] for rank in sorted(hosts)):
        _of_host([r for r in sorted(hosts) if hosts[r] == host], reference, fitted, clocks)
    unknown = [
        rank for rank, clock in fitted.items() if clock is None and hosts[rank] != hosts[reference]
    ]
    ledger.note(
        "unaligned-clock",
        "nothing tells how a host's clock goes: it is taken as right",
        severity=Severity.ERROR,
        count=len(unknown),
        remedy="record with handshakes, or windows with collectives in them",
        example=f"rank {unknown[0]}" if unknown else "",
    )
    _note_disagreement(clocks, ends, reference, ledger)
    return clocks


def to_common(clock: Clock, own_ns: I8) -> I8:
    drift = np.rint((own_ns - clock.since_ns) * (clock.drift_ppm * 1e-6)).astype(np.int64)
    common: I8 = own_ns + clock.offset_ns + drift
    return common


def _fit(
    handshakes: Sequence[Handshake],
    reference: int,
    ends: Mapping[int, Ends],
    rank: int,
    source: Source,
) -> Clock | None:
    if source in ("auto", "handshake"):
        clock = _if_sane(from_handshakes([h for h in handshakes if h.peer == reference]))
        if clock is not None or source == "handshake":
            return clock
    if source in ("auto", "collectives"):
        return _if_sane(from_collectives(ends.get(rank, {}), ends.get(reference, {})))
    raise InputError(
        f"clocks cannot be aligned by {source!r}", remedy="choose auto, handshake or collectives"
    )


def _if_sane(clock: Clock | None) -> Clock | None:
    """A clock that is years away or goes a hundredth too fast was not read, but made up."""
    if clock is None or abs(clock.offset_ns) > _MAX_OFFSET_NS or abs(clock.drift_ppm) > 10_000:
        return None
    return clock


def from_handshakes(handshakes: Sequence[Handshake]) -> Clock | None:
    """Only exchanges that were hardly longer on the way than the shortest are believed."""
    moments: dict[str, list[tuple[int, int, int, int]]] = {}
    for handshake in handshakes:
        moments.setdefault(handshake.moment, []).extend(
            e for e in handshake.exchanges if e[3] - e[0] >= e[2] - e[1] >= 0
        )
    points: list[tuple[float, float]] = []
    believed: list[tuple[NDArray[np.float64], NDArray[np.float64]]] = []
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
        residual_ns=round(float(np.median(np.abs(residual)))),
        source="handshake",
    )


def from_collectives(own: Ends, other: Ends) -> Clock | None:
    shared = sorted(own.keys() & other.keys())
    if not shared:
        return None
    at = np.array([own[key] for key in shared], dtype=np.int64)
    gap = np.array([other[key] for key in shared], dtype=np.int64) - at
    origin, level = int(at.min()), int(np.median(gap))
    x = (at - origin).astype(np.float64)
    y = (gap - level).astype(np.float64)
    offset, drift = robust_line(x, y)
    return Clock(
        offset_ns=level + round(offset),
        drift_ppm=drift * 1e6,
        since_ns=origin,
        residual_ns=round(float(np.median(np.abs(y - offset - drift * x)))),
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


def _of_host(
    ranks: list[int],
    reference: int,
    fitted: Mapping[int, Clock | None],
    clocks: dict[int, Clock],
) -> None:
    """Ranks of one host share the clock of the one that is known best, if they agree with it."""
    known = [(rank, clock) for rank in ranks if (clock := fitted[rank]) is not None]
    if reference in ranks:
        leader: Clock = Clock()
        shared = Clock(source="host")
    elif known:
        leader = shared = min((clock for _, clock in known), key=lambda clock: clock.residual_ns)
    else:
        clocks.update(dict.fromkeys(ranks, Clock()))
        return
    for rank in ranks:
        clock = fitted[rank]
        if rank == reference:
            clocks[rank] = Clock()
        elif clock is None or _is_one(clock, leader):
            clocks[rank] = shared
        else:
            clocks[rank] = clock


def _is_one(clock: Clock, leader: Clock) -> bool:
    """Over the ten seconds around the recording, which is where the two lines are known."""
    times = clock.since_ns + np.array([0, 10_000_000_000], dtype=np.int64)
    apart = np.abs(to_common(clock, times) - to_common(leader, times)).max()
    return bool(apart <= ONE_CLOCK_NS.get(clock.source, 0))


def _note_disagreement(
    clocks: Mapping[int, Clock], ends: Mapping[int, Ends], reference: int, ledger: Ledger
) -> None:
    theirs = ends.get(reference, {})
    for rank, clock in clocks.items():
        shared = sorted(ends.get(rank, {}).keys() & theirs.keys())
        if rank == reference or not shared:
            continue
        own = np.array([ends[rank][key] for key in shared], dtype=np.int64)
        other = np.array([theirs[key] for key in shared], dtype=np.int64)
        apart = int(np.median(np.abs(to_common(clock, own) - other)))
        if apart > IMPLAUSIBLE_NS:
            ledger.note(
                "clocks-disagree",
                "collectives end far apart on ranks whose clocks were aligned",
                remedy="do not trust times between these ranks",
                example=f"rank {rank}: {apart / 1e6:.1f} ms",
            )
