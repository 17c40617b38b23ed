"""Aligns the clocks of all ranks to that of the first rank, by the most precise source.

A clock is a line: offset and drift. Handshakes, ends of collectives and messages on the wire each
give a line with a residual, which bounds its error. The line with the smallest residual is used,
unless the caller chooses a source.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Literal

import numpy as np

from augury.core.columns import I8
from augury.core.errors import InputError
from augury.core.ledger import Ledger, Severity
from augury.core.trace.rank_record import Handshake
from augury.core.trace.trace import Clock
from augury.ingest.clocks.clock_fits import Ends, from_collectives, from_handshakes

Source = Literal["auto", "handshake", "collectives", "wire"]
SOURCES: tuple[Source, ...] = ("handshake", "wire", "collectives")

ONE_CLOCK_NS = {"handshake": 500_000, "wire": 500_000, "collectives": 2_000_000}
"""Ranks of one host share a clock if their fitted clocks differ by no more than this."""
_UNKNOWN_HOST_NS = 200_000
"""The same for ranks of unknown hosts: ends of collectives agree as well on any two ranks."""
IMPLAUSIBLE_NS = 20_000_000
"""Ends of one collective differ by less; beyond, the match or the clock is wrong."""
_ALLOWED_NS = 100_000
"""Allowed difference of sources beyond their residuals: no clock is exactly a line."""
_MAX_OFFSET_NS = 10**17


def align(
    hosts: Mapping[int, str],
    handshakes: Mapping[int, Sequence[Handshake]],
    ends: Mapping[int, Ends],
    ledger: Ledger,
    *,
    wire: Mapping[int, Clock] | None = None,
    source: Source = "auto",
) -> dict[int, Clock]:
    """Returns the clock of each rank of ``hosts`` relative to the lowest rank. ``wire`` has the
    clocks that messages give."""
    reference = min(hosts)
    found = {
        rank: fits(rank, reference, handshakes.get(rank, ()), ends, wire or {}, source)
        for rank in sorted(hosts)
        if rank != reference
    }
    fitted: dict[int, Clock | None] = {reference: Clock()}
    for rank, lines in found.items():
        fitted[rank] = min(lines.values(), key=lambda clock: clock.residual_ns, default=None)
    if source in ("auto", "collectives"):
        _fit_through_others(fitted, ends)
    clocks: dict[int, Clock] = {}
    for host in dict.fromkeys(hosts[rank] for rank in sorted(hosts)):
        on_host = [r for r in sorted(hosts) if hosts[r] == host]
        _share_on_host(on_host, reference, fitted, clocks, ends if not host else {})
    for rank, lines in found.items():
        if clocks[rank].source != "host":
            _note_different_sources(rank, list(lines.values()), ends.get(rank, {}), ledger)
    unknown = [
        rank for rank, clock in fitted.items() if clock is None and hosts[rank] != hosts[reference]
    ]
    ledger.note(
        "unaligned-clock",
        "no source gives the clock of a host; it is used as it is",
        severity=Severity.ERROR,
        count=len(unknown),
        remedy="record with handshakes, or windows with collectives in them",
        example=f"rank {unknown[0]}" if unknown else "",
    )
    _note_disagreement(clocks, ends, reference, ledger)
    return clocks


def to_common(clock: Clock, own_ns: I8) -> I8:
    """Converts times on a rank's own clock to the common clock."""
    drift = np.rint((own_ns - clock.since_ns) * (clock.drift_ppm * 1e-6)).astype(np.int64)
    common: I8 = own_ns + clock.offset_ns + drift
    return common


def from_common(clock: Clock, common_ns: I8) -> I8:
    """Converts times on the common clock to a rank's own clock."""
    moved_ns = common_ns - clock.offset_ns
    drift = clock.drift_ppm * 1e-6
    back = np.rint((moved_ns - clock.since_ns) * (drift / (1 + drift))).astype(np.int64)
    own: I8 = moved_ns - back
    return own


def fits(
    rank: int,
    reference: int,
    handshakes: Sequence[Handshake],
    ends: Mapping[int, Ends],
    wire: Mapping[int, Clock],
    source: Source,
) -> dict[Source, Clock]:
    """Returns one rank's clock by each of the wanted sources."""
    if source not in ("auto", *SOURCES):
        raise InputError(
            f"clocks cannot be aligned by {source!r}",
            remedy=f"choose auto, {', '.join(SOURCES)}",
        )
    found: dict[Source, Clock | None] = {}
    if source in ("auto", "handshake"):
        found["handshake"] = from_handshakes([h for h in handshakes if h.peer == reference])
    if source in ("auto", "wire"):
        found["wire"] = wire.get(rank)
    if source in ("auto", "collectives"):
        found["collectives"] = from_collectives(ends.get(rank, {}), ends.get(reference, {}))
    return {name: clock for name, clock in found.items() if clock and _is_plausible(clock)}


def _fit_through_others(fitted: dict[int, Clock | None], ends: Mapping[int, Ends]) -> None:
    """Fits the clocks of ranks that share no collective with the first rank: to the ends on ranks
    with known clocks, the rank with the most shared collectives first."""
    left = {rank for rank, clock in fitted.items() if clock is None and ends.get(rank)}
    if not left:
        return
    common: dict[tuple[int, int], int] = {}
    for rank, clock in fitted.items():
        if clock is not None:
            _add_common(common, clock, ends.get(rank, {}))
    while left:
        rank = max(sorted(left), key=lambda rank: len(ends[rank].keys() & common.keys()))
        clock = from_collectives(ends[rank], common)
        if clock is None or not _is_plausible(clock):
            return
        fitted[rank] = clock
        _add_common(common, clock, ends[rank])
        left.remove(rank)


def _add_common(common: dict[tuple[int, int], int], clock: Clock, ends: Ends) -> None:
    times_ns = to_common(clock, np.array([*ends.values()], dtype=np.int64)).tolist()
    for key, end_ns in zip(ends, times_ns, strict=True):
        common.setdefault(key, end_ns)


def _is_plausible(clock: Clock) -> bool:
    """An offset of years or a drift of a percent comes from wrong data."""
    return abs(clock.offset_ns) <= _MAX_OFFSET_NS and abs(clock.drift_ppm) <= 10_000


def _share_on_host(
    ranks: list[int],
    reference: int,
    fitted: Mapping[int, Clock | None],
    clocks: dict[int, Clock],
    ends: Mapping[int, Ends],
) -> None:
    """Ranks of one host share the clock with the smallest residual, if theirs agree with it. Where
    hosts are unknown, ``ends`` has the collectives, and clocks must agree as well as their ends."""
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
        elif clock is None or _is_same(clock, leader, ends.get(rank, {})):
            clocks[rank] = shared
        else:
            clocks[rank] = clock


def _is_same(clock: Clock, leader: Clock, ends: Ends) -> bool:
    """Compares over ten seconds from the start of the recording, where both lines are known; where
    hosts are unknown, over the recording."""
    allowed_ns = ONE_CLOCK_NS.get(clock.source, 0)
    span_ns = 10_000_000_000
    if ends:
        allowed_ns = min(allowed_ns, _UNKNOWN_HOST_NS)
        span_ns = max(0, max(ends.values()) - clock.since_ns)
    times = clock.since_ns + np.array([0, span_ns], dtype=np.int64)
    apart = np.abs(to_common(clock, times) - to_common(leader, times)).max()
    return bool(apart <= allowed_ns)


def _note_different_sources(rank: int, clocks: Sequence[Clock], ends: Ends, ledger: Ledger) -> None:
    """Compares from the time at which both clocks are known to the end of the recording."""
    for one, other in combinations(clocks, 2):
        begin = max(one.since_ns, other.since_ns)
        own = np.array([begin, max([begin, *ends.values()])], dtype=np.int64)
        apart = int(np.abs(to_common(one, own) - to_common(other, own)).max())
        if apart > one.residual_ns + other.residual_ns + _ALLOWED_NS:
            ledger.note(
                "clock-sources-apart",
                "two sources of a clock differ by more than their residuals",
                remedy="do not trust short times between this rank and the first rank",
                example=f"rank {rank}: {one.source} and {other.source}, {apart / 1e6:.3f} ms",
            )


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
                "collectives end far apart on ranks with aligned clocks",
                remedy="do not trust times between these ranks",
                example=f"rank {rank}: {apart / 1e6:.1f} ms",
            )
