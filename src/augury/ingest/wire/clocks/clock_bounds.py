"""What calls on both ends of connections say of clocks: no byte is received before it was sent.

Of a million calls a few hundred can matter: those on the lower hull of delay over time, whichever
line a clock may be. Beside these, the shortest delay of each stretch of time is kept, so that
something is left where a row of the hull turns out to be wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from augury.core.columns import I8
from augury.core.ledger import Ledger
from augury.ingest.wire.clocks.lower_hull import Rows, lower_hull

RECEIVED_BEFORE_SENT = "received-before-sent"
CONTRADICTS = "single calls contradict all others on how clocks go: not believed"
MAX_TIME_NS = 4 * 10**18
_MAX_POSITION = 1 << 60
_STRETCHES = 128
_FAR_NS = 60 * 10**9
_SAME_CLOCK_NS = 200_000
"""One clock may seem to go back by that much between threads that count a socket's bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """One direction of a connection that was recorded at both ends, from its beginning."""

    sender: int
    """Process, as is the receiver."""
    receiver: int
    sent_position: I8
    sent_bytes: I8
    sent_ns: I8
    """When each call began that sent, by the sender's clock."""
    received_position: I8
    received_bytes: I8
    received_ns: I8
    """When each call ended that received, by the receiver's clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delays:
    """Rows in order of sending: a byte that was sent not before, and received not after."""

    sent_ns: I8
    received_ns: I8

    def __len__(self) -> int:
        return len(self.sent_ns)

    def of(self, rows: Rows | NDArray[np.bool_]) -> Delays:
        return Delays(sent_ns=self.sent_ns[rows], received_ns=self.received_ns[rows])


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    clock_of: tuple[int, ...]
    """The clock of each process."""
    delays: dict[tuple[int, int], Delays] = field(default_factory=dict)
    """Those that may bind, by the clocks of sender and receiver."""


def wire_bounds(flows: Iterable[Flow], hosts: Sequence[str], ledger: Ledger) -> Bounds:
    """``hosts`` has the name of each process's host. Processes of one host have one clock, unless
    they receive what was not sent yet: then two hosts have one name, or none."""
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
    """Every receive with the call that sent its last byte: all others began earlier, and say
    less. Where that one was not kept, the last one that was and sent some of it."""
    order = np.argsort(flow.sent_position, kind="stable")
    begin = flow.sent_position[order]
    end = begin + flow.sent_bytes[order]
    if not len(order):
        return Delays(sent_ns=begin, received_ns=begin)
    last = flow.received_position + flow.received_bytes - 1
    row = np.searchsorted(begin, last, side="right") - 1
    sent_ns = flow.sent_ns[order][row]
    is_sound = (
        (row >= 0)
        & (flow.received_bytes > 0)
        & (end[row] > flow.received_position)
        & (np.abs(flow.received_position) < _MAX_POSITION)
        & _is_a_time(flow.received_ns)
        & _is_a_time(sent_ns)
    )
    return Delays(sent_ns=sent_ns[is_sound], received_ns=flow.received_ns[is_sound])


def joined(parts: Sequence[Delays]) -> Delays:
    sent_ns = np.concatenate([part.sent_ns for part in parts])
    received_ns = np.concatenate([part.received_ns for part in parts])
    return Delays(sent_ns=sent_ns, received_ns=received_ns).of(np.argsort(sent_ns, kind="stable"))


def pruned(delays: Delays) -> Delays:
    if len(delays) <= _STRETCHES:
        return delays
    delay = delays.received_ns - delays.sent_ns
    edges = np.linspace(0, len(delays), _STRETCHES + 1).astype(np.intp)[:-1]
    shortest = np.minimum.reduceat(delay, edges)
    stretch = np.searchsorted(edges, np.arange(len(delays)), side="right") - 1
    is_shortest = np.flatnonzero(delay == shortest[stretch])
    _, first = np.unique(stretch[is_shortest], return_index=True)
    return delays.of(np.union1d(_hull(delays), is_shortest[first]))


def binding(delays: Delays) -> Delays:
    """Once all rows are believed."""
    return delays.of(_hull(delays))


def _hull(delays: Delays) -> Rows:
    delay = delays.received_ns - delays.sent_ns
    since_s = (delays.sent_ns - delays.sent_ns[0]) / 1e9
    return lower_hull(since_s, (delay - int(np.median(delay))) / 1e3)


def _believable(delays: Delays, ledger: Ledger) -> Delays:
    """Beyond all delays, drifts and reason, a time would only make all other numbers small."""
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
    sound: NDArray[np.bool_] = (ns > 0) & (ns < MAX_TIME_NS)
    return sound


def _clocks_of(
    hosts: Sequence[str], between: dict[tuple[int, int], Delays], ledger: Ledger
) -> list[int]:
    deceiving: set[str] = set()
    for (sender, receiver), delays in between.items():
        host = hosts[sender]
        if host != hosts[receiver] or not len(delays) or host in deceiving:
            continue
        # Not the shortest: a row may be damaged.
        apart = int(np.quantile(delays.received_ns - delays.sent_ns, 0.1))
        if apart < -_SAME_CLOCK_NS:
            deceiving.add(host)
            ledger.note(
                "one-host-two-clocks",
                "processes of one host name receive what was not sent yet: each has its own clock",
                remedy="give hosts names of their own",
                example=f"{host[:64]}: {-apart / 1e6:.3f} ms",
            )
    known: dict[object, int] = {}
    return [
        known.setdefault((process, host) if host in deceiving else host, len(known))
        for process, host in enumerate(hosts)
    ]
