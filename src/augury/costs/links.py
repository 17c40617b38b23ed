"""Links: bandwidth and latency of each direction between ranks, fitted from messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from augury.core.errors import InputError, UsageError
from augury.core.wire import MessageKind, Messages, Wire
from augury.costs.collective_steps import Send

LARGE_BYTES = 32 << 10
"""Smallest message whose time is determined by bandwidth."""
SMALL_BYTES = 1 << 10
FEWEST_MESSAGES = 4
MAX_NS_PER_BYTE = 1e6
MUCH_LARGER = 4
"""A message that is this many times as large as most shows the rate that a link sustains."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """Outbound and inbound speed of each rank in nanoseconds per byte. The path between two ranks
    may be slower by a factor; ``path`` and ``latency_ns`` are by (sender, receiver)."""

    out: NDArray[np.float64]
    into: NDArray[np.float64]
    path: NDArray[np.float64]
    latency_ns: NDArray[np.float64]
    reduce_ns_per_byte: float = 0.0
    """Time per byte of a receiver to sum received data."""
    burst: float = 1.0
    """Factor by which the links were faster, where they had pauses, than they are without: a rate
    limiter lets the first bytes after a pause through at once."""
    stall: float = 1.0
    """Factor by which the mean time per byte of the slowest path exceeds its usual one, beyond the
    same factor of the fastest path: retransmissions stall a few messages for long."""

    @classmethod
    def of(cls, ns_per_byte: NDArray[np.float64], latency_ns: NDArray[np.float64]) -> Links:
        """Derives links from measured pairs. A rank has the highest speed measured in each
        direction: if one of two ranks is faster elsewhere, the other one limits the pair."""
        num_ranks = len(ns_per_byte)
        others = np.where(np.eye(num_ranks, dtype=bool), np.inf, ns_per_byte)
        own = np.minimum(others.min(axis=0), others.min(axis=1)) if num_ranks > 1 else np.ones(1)
        expected = np.maximum(own[:, None], own[None, :])
        path = np.where(np.isfinite(others), others, expected) / expected
        return cls(out=own, into=own, path=path, latency_ns=latency_ns)

    @property
    def num_ranks(self) -> int:
        return len(self.out)

    @property
    def ns_per_byte(self) -> NDArray[np.float64]:
        """By (sender, receiver): the slower of both ends times the path factor."""
        return np.maximum(self.out[:, None], self.into[None, :]) * self.path

    def rate_of(self, rank: int) -> float:
        """Returns the outbound bandwidth of a rank in bytes per second."""
        self._check(rank)
        return 1e9 / float(self.out[rank])

    def between(self, src: int, dst: int) -> float:
        return max(float(self.out[src]), float(self.into[dst])) * float(self.path[src, dst])

    @property
    def typical_rate(self) -> float:
        """Returns the median bandwidth in bytes per second."""
        others = self.ns_per_byte[~np.eye(self.num_ranks, dtype=bool)]
        return 1e9 / float(np.median(others))

    def send_ns(self, send: Send, order: Sequence[int]) -> float:
        return self.between(order[send.src], order[send.dst]) * send.size_bytes

    def take_ns(self, send: Send, order: Sequence[int]) -> float:
        own = float(self.latency_ns[order[send.src], order[send.dst]])
        return own + (send.size_bytes * self.reduce_ns_per_byte if send.reduces else 0.0)

    def alone_ns(
        self, sends: Sequence[Send], order: Sequence[int], *, stretch: float = 1.0
    ) -> float:
        """Returns the time of a collective on an idle network. ``order`` is the rank at each
        position. A rank receives one message at a time. ``stretch`` is a factor on sending."""
        sent = [0.0] * len(order)
        free = [0.0] * len(order)
        taken: list[float] = []
        for send in sends:
            ready = max((taken[i] for i in (*send.has, *send.room)), default=0.0)
            own_ns = self.send_ns(send, order) * stretch
            sent[send.src] = max(ready, sent[send.src]) + own_ns
            begin = max(sent[send.src], free[send.dst])
            free[send.dst] = begin + self.take_ns(send, order)
            taken.append(free[send.dst])
        return max(taken, default=0.0)

    def stretch_for(self, sends: Sequence[Send], order: Sequence[int], took_ns: float) -> float:
        """Returns the factor on sending with which the collective takes ``took_ns``, if that is
        longer than on an idle network. The time is nearly linear in it: a few secants suffice."""
        low, at_low = 1.0, self.alone_ns(sends, order)
        if took_ns <= at_low or at_low <= 0:
            return 1.0
        high = took_ns / at_low
        for _ in range(4):
            at_high = self.alone_ns(sends, order, stretch=high)
            if at_high <= at_low or abs(at_high - took_ns) < 1e-3 * took_ns:
                break
            step = (took_ns - at_high) * (high - low) / (at_high - at_low)
            low, at_low, high = high, at_high, max(1.0, high + step)
        return high

    def all_faster(self, factor: float) -> Links:
        return replace(self, out=self.out / factor, into=self.into / factor)

    def faster(
        self, rank: int, factor: float, *, sends: bool = True, receives: bool = True
    ) -> Links:
        """Changes the link of one rank, in both directions."""
        self._check(rank)
        scale = np.where(np.arange(self.num_ranks) == rank, 1 / factor, 1.0)
        return replace(
            self,
            out=self.out * scale if sends else self.out,
            into=self.into * scale if receives else self.into,
        )

    def _check(self, rank: int) -> None:
        if not 0 <= rank < self.num_ranks:
            raise UsageError(f"there is no rank {rank}", remedy=f"name 0 to {self.num_ranks - 1}")

    def slower_by(self, *, factor: float = 1.0, more_ns: float = 0.0) -> Links:
        """Changes the latency."""
        return replace(self, latency_ns=self.latency_ns * factor + more_ns)

    def grown(self, num_ranks: int) -> Links:
        """Adds ranks, whose links repeat the existing ones in turn."""
        like = np.arange(num_ranks) % self.num_ranks
        return replace(
            self,
            out=self.out[like],
            into=self.into[like],
            # A rank and its copy are as far apart as any two ranks.
            path=_without_own(self.path)[np.ix_(like, like)],
            latency_ns=_without_own(self.latency_ns)[np.ix_(like, like)],
        )


def fit_links(wire: Wire, num_ranks: int) -> Links:
    """Fits links to the messages of collectives. A pair of ranks without messages has the lower of
    the sender's outbound and the receiver's inbound speed."""
    messages = wire.messages
    src, dst = wire.ranks_of(messages.src), wire.ranks_of(messages.dst)
    known = (
        (src >= 0) & (dst >= 0) & (src < num_ranks) & (dst < num_ranks)
        & (messages.send_ns >= 0) & (messages.received_ns >= 0)
        & (messages.kind != MessageKind.OWN)
    )  # fmt: skip
    rates: dict[tuple[int, int], float] = {}
    bursts: list[float] = []
    stalls: dict[tuple[int, int], float] = {}
    delays: dict[tuple[int, int], float] = {}
    for a, b in sorted(set(zip(src[known].tolist(), dst[known].tolist(), strict=True))):
        rows = np.flatnonzero(known & (src == a) & (dst == b))
        rows = rows[np.argsort(messages.received_ns[rows], kind="stable")]
        delays[a, b] = _latency_ns(messages, rows)
        rate = _ns_per_byte(messages, rows, delays[a, b])
        if rate is not None:
            rates[a, b] = rate
            bursts.append(_burst(messages, rows, delays[a, b]))
            stalls[a, b] = _stall(messages, rows, delays[a, b])
    if not rates:
        raise InputError(
            "the wire shows no large message between ranks",
            remedy="record a window of steps that communicate with `augury run --wire`",
        )
    links = Links.of(_whole(rates, num_ranks, worst=True), _whole(delays, num_ranks, worst=False))
    slowest, fastest = max(rates, key=rates.__getitem__), min(rates, key=rates.__getitem__)
    stall = max(1.0, stalls[slowest] / stalls[fastest])
    return replace(links, burst=max(bursts), stall=stall)


def _latency_ns(messages: Messages, rows: NDArray[np.int64]) -> float:
    """Returns the latency of small messages on an idle link: the fastest tenth."""
    delay = (messages.received_ns - messages.send_ns)[rows]
    small = delay[messages.size_bytes[rows] <= SMALL_BYTES]
    chosen = small if len(small) >= FEWEST_MESSAGES else delay
    return max(1.0, float(np.quantile(chosen, 0.1))) if len(chosen) else 1.0


def _ns_per_byte(messages: Messages, rows: NDArray[np.int64], latency_ns: float) -> float | None:
    """Returns the median time per byte, weighted by bytes."""
    ratio, size = _times_per_byte(messages, rows, latency_ns)
    if len(size) < FEWEST_MESSAGES:
        return None
    return min(_weighted_median(ratio, size), MAX_NS_PER_BYTE)


def _burst(messages: Messages, rows: NDArray[np.int64], latency_ns: float) -> float:
    """Returns the time per byte of messages that are much larger than most, over that of most; 1
    without such messages."""
    ratio, size = _times_per_byte(messages, rows, latency_ns)
    largest = size >= MUCH_LARGER * _weighted_median(size, size)
    if not largest.any():
        return 1.0
    usual = _weighted_median(ratio[~largest], size[~largest])
    return max(1.0, _weighted_median(ratio[largest], size[largest]) / usual)


def _stall(messages: Messages, rows: NDArray[np.int64], latency_ns: float) -> float:
    """Returns the mean time per byte over the median; at least 1."""
    ratio, size = _times_per_byte(messages, rows, latency_ns)
    return max(1.0, float(ratio @ size / size.sum()) / _weighted_median(ratio, size))


def _times_per_byte(
    messages: Messages, rows: NDArray[np.int64], latency_ns: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Returns the time per byte and the size of each large message. A message occupies the link
    from its sending, or from the arrival of the one before."""
    size = messages.size_bytes[rows].astype(np.float64)
    received = messages.received_ns[rows].astype(np.float64)
    begun = _link_start_ns(messages.send_ns[rows] + latency_ns, received)
    large = (size >= LARGE_BYTES) & (received > begun)
    return (received - begun)[large] / size[large], size[large]


def _weighted_median(values: NDArray[np.float64], weights: NDArray[np.float64]) -> float:
    order = np.argsort(values)
    half = np.searchsorted(np.cumsum(weights[order]), weights.sum() / 2)
    return float(values[order][min(half, len(order) - 1)])


def median_rate_bytes_per_s(messages: Messages, rows: NDArray[np.intp]) -> float | None:
    """Median rate of the large messages of one link; None if there are none. ``rows`` are its timed
    messages in the order of arrival. Latency is included, unlike in ``fit_links``."""
    received, size = messages.received_ns[rows], messages.size_bytes[rows]
    took = received - _link_start_ns(messages.send_ns[rows], received)
    large = (size >= LARGE_BYTES) & (took > 0)
    return float(np.median(size[large] / took[large])) * 1e9 if large.any() else None


def _link_start_ns(sent: NDArray[Any], received: NDArray[Any]) -> NDArray[Any]:
    """A message occupies the link from when it was sent, or from when the message before it had
    arrived, whichever is later."""
    start = sent.copy()
    start[1:] = np.maximum(start[1:], received[:-1])
    return start


def _whole(
    seen: Mapping[tuple[int, int], float], num_ranks: int, *, worst: bool
) -> NDArray[np.float64]:
    middle = float(np.median(list(seen.values())))
    out = [
        min((v for (a, _), v in seen.items() if a == r), default=middle) for r in range(num_ranks)
    ]
    into = [
        min((v for (_, b), v in seen.items() if b == r), default=middle) for r in range(num_ranks)
    ]
    table = np.zeros((num_ranks, num_ranks))
    for a in range(num_ranks):
        for b in range(num_ranks):
            if a != b:
                guess = max(out[a], into[b]) if worst else (out[a] + into[b]) / 2
                table[a, b] = seen.get((a, b), guess)
    return table


def _without_own(table: NDArray[np.float64]) -> NDArray[np.float64]:
    """Fills the diagonal, which has no measurements, with the median."""
    filled = table.copy()
    others = table[~np.eye(len(table), dtype=bool)]
    np.fill_diagonal(filled, float(np.median(others)) if len(others) else 0.0)
    return filled
