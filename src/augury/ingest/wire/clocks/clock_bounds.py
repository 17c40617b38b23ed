"""Bounds on clocks from calls at both ends of connections: no byte is received before it is sent.

Of a million calls a few hundred can bind: those on the lower hull of delay over time, for any drift
of the clocks. The shortest delay of each interval of time is kept as well, in case a row of the
hull turns out to be wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from augury.core.columns import I8
from augury.core.ledger import Ledger

F8 = NDArray[np.float64]
RowIndices = NDArray[np.intp]

RECEIVED_BEFORE_SENT = "received-before-sent"
CONTRADICTS = "single calls contradict the clocks that all others imply; they are left out"
MAX_TIME_NS = 4 * 10**18
_MAX_POSITION = 1 << 60
_NUM_INTERVALS = 128
_FAR_NS = 60 * 10**9
_SAME_CLOCK_NS = 200_000
"""Bytes of one socket counted by two threads may seem received this much too early."""
_FEW_POINTS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """One direction of a connection that both ends recorded from its beginning."""

    sender: int
    """Index of the sending process."""
    receiver: int
    sent_position: I8
    sent_bytes: I8
    sent_ns: I8
    """Start of each sending call on the sender's clock."""
    received_position: I8
    received_bytes: I8
    received_ns: I8
    """End of each receiving call on the receiver's clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delays:
    """Earliest sending and latest receipt of single bytes, in order of sending."""

    sent_ns: I8
    received_ns: I8

    def __len__(self) -> int:
        return len(self.sent_ns)

    def of(self, rows: RowIndices | NDArray[np.bool_]) -> Delays:
        return Delays(sent_ns=self.sent_ns[rows], received_ns=self.received_ns[rows])


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Delays that bound the clocks of all processes."""

    clock_of: tuple[int, ...]
    """Clock of each process."""
    delays: dict[tuple[int, int], Delays] = field(default_factory=dict)
    """Delays that may bind, by the clocks of sender and receiver."""


def wire_bounds(flows: Iterable[Flow], hosts: Sequence[str], ledger: Ledger) -> Bounds:
    """``hosts`` has the host name of each process. Processes of one host have one clock, unless
    they receive bytes before these are sent: then two hosts share a name."""
    between: dict[tuple[int, int], list[Delays]] = {}
    for flow in flows:
        matched = match(flow)
        if len(matched):
            between.setdefault((flow.sender, flow.receiver), []).append(matched)
    of_processes = {pair: joined(parts) for pair, parts in between.items()}
    clock_of = _clocks_of(hosts, of_processes, ledger)
    of_clocks: dict[tuple[int, int], list[Delays]] = {}
    for (sender, receiver), delays in of_processes.items():
        clocks = (clock_of[sender], clock_of[receiver])
        if clocks[0] != clocks[1]:
            of_clocks.setdefault(clocks, []).append(delays)
    return Bounds(
        clock_of=tuple(clock_of),
        delays={
            clocks: pruned(_believable(joined(parts), ledger))
            for clocks, parts in of_clocks.items()
        },
    )


def match(flow: Flow) -> Delays:
    """Pairs each receive with the call that sent its last byte, which bounds the delay best; if
    that call was not kept, with the last kept call that sent a part of it."""
    order = np.argsort(flow.sent_position, kind="stable")
    begin = flow.sent_position[order]
    end = begin + flow.sent_bytes[order]
    if not len(order):
        return Delays(sent_ns=begin, received_ns=begin)
    last = flow.received_position + flow.received_bytes - 1
    row = np.searchsorted(begin, last, side="right") - 1
    sent_ns = flow.sent_ns[order][row]
    is_valid = (
        (row >= 0)
        & (flow.received_bytes > 0)
        & (end[row] > flow.received_position)
        & (np.abs(flow.received_position) < _MAX_POSITION)
        & _is_a_time(flow.received_ns)
        & _is_a_time(sent_ns)
    )
    return Delays(sent_ns=sent_ns[is_valid], received_ns=flow.received_ns[is_valid])


def joined(parts: Sequence[Delays]) -> Delays:
    sent_ns = np.concatenate([part.sent_ns for part in parts])
    received_ns = np.concatenate([part.received_ns for part in parts])
    return Delays(sent_ns=sent_ns, received_ns=received_ns).of(np.argsort(sent_ns, kind="stable"))


def pruned(delays: Delays) -> Delays:
    """Keeps the hull and the shortest delay of each interval."""
    if len(delays) <= _NUM_INTERVALS:
        return delays
    delay = delays.received_ns - delays.sent_ns
    edges = np.linspace(0, len(delays), _NUM_INTERVALS + 1).astype(np.intp)[:-1]
    shortest = np.minimum.reduceat(delay, edges)
    interval = np.searchsorted(edges, np.arange(len(delays)), side="right") - 1
    is_shortest = np.flatnonzero(delay == shortest[interval])
    _, first = np.unique(interval[is_shortest], return_index=True)
    return delays.of(np.union1d(_hull(delays), is_shortest[first]))


def binding(delays: Delays) -> Delays:
    """Keeps the hull alone, once wrong rows have been removed."""
    return delays.of(_hull(delays))


def _hull(delays: Delays) -> RowIndices:
    delay = delays.received_ns - delays.sent_ns
    since_s = (delays.sent_ns - delays.sent_ns[0]) / 1e9
    return lower_hull(since_s, (delay - int(np.median(delay))) / 1e3)


def lower_hull(x: F8, y: F8) -> RowIndices:
    """Returns the rows of the lower convex hull, sorted by ``x``. Of points with equal ``x`` only
    the lowest counts.

    Points on a straight line between others are left out exactly, which scipy's hull, with its
    tolerances, does not promise."""
    rows = np.lexsort((y, x))
    rows = rows[np.append(True, np.diff(x[rows]) > 0)] if len(rows) else rows
    rows = _thinned(x, y, rows)
    kept: list[int] = []
    for row in rows.tolist():
        while len(kept) > 1 and _turn(x, y, kept[-2], kept[-1], row) <= 0:
            kept.pop()
        kept.append(row)
    return np.array(kept, dtype=np.intp)


def height(x: F8, y: F8, where: float) -> float:
    """Returns the height of the lower hull at ``where``; constant beyond its ends."""
    hull = lower_hull(x, y)
    return float(np.interp(where, x[hull], y[hull]))


def _thinned(x: F8, y: F8, rows: RowIndices) -> RowIndices:
    """Drops points above the line between their two neighbours, even and odd ones in turn so that
    the neighbours stay. A million points become few after some turns."""
    parity = 0
    before = 2 * len(rows)
    while len(rows) > _FEW_POINTS and (parity or before - len(rows) > before // 10):
        if not parity:
            before = len(rows)
        middle = np.arange(1 + parity, len(rows) - 1, 2)
        left, own, right = rows[middle - 1], rows[middle], rows[middle + 1]
        is_above = (x[own] - x[left]) * (y[right] - y[left]) <= (y[own] - y[left]) * (
            x[right] - x[left]
        )
        rows = np.delete(rows, middle[is_above])
        parity = 1 - parity
    return rows


def _turn(x: F8, y: F8, first: int, second: int, third: int) -> float:
    return float(
        (x[second] - x[first]) * (y[third] - y[first])
        - (y[second] - y[first]) * (x[third] - x[first])
    )


def _believable(delays: Delays, ledger: Ledger) -> Delays:
    """Drops delays that no drift explains: they would dwarf all others in the linear program."""
    delay = delays.received_ns - delays.sent_ns
    away = delay - int(np.median(delay))
    ledger.note(
        RECEIVED_BEFORE_SENT,
        CONTRADICTS,
        count=int((away < -_FAR_NS).sum()),
        example=f"by {-away.min() / 1e9:.1f} s",
    )
    return delays.of(np.abs(away) <= _FAR_NS)


def _is_a_time(ns: I8) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = (ns > 0) & (ns < MAX_TIME_NS)
    return found


def _clocks_of(
    hosts: Sequence[str], between: dict[tuple[int, int], Delays], ledger: Ledger
) -> list[int]:
    ambiguous: set[str] = set()
    for (sender, receiver), delays in between.items():
        host = hosts[sender]
        if host != hosts[receiver] or not len(delays) or host in ambiguous:
            continue
        # A quantile rather than the shortest: a row may be damaged.
        apart = int(np.quantile(delays.received_ns - delays.sent_ns, 0.1))
        if apart < -_SAME_CLOCK_NS:
            ambiguous.add(host)
            ledger.note(
                "one-host-two-clocks",
                "processes of one host receive bytes before these are sent; each gets a clock",
                remedy="give each host a name of its own",
                example=f"{host[:64]}: {-apart / 1e6:.3f} ms",
            )
    known: dict[object, int] = {}
    return [
        known.setdefault((process, host) if host in ambiguous else host, len(known))
        for process, host in enumerate(hosts)
    ]
