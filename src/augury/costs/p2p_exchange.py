"""Cost of a piece that two ranks exchange: one message each way, behind others on the same
connection. Ranks take no turns and nothing is summed on the way, so compute does not delay it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from augury.core.enums import OpKind
from augury.core.plan.problem import Network
from augury.core.trace.trace import Calibration
from augury.costs.collective_costs import Costs
from augury.costs.transfer_times import TransferCost, fit_transfers

ASSUMED_OVERHEAD_NS = 100_000
ASSUMED_LATENCY_NS = 300_000
"""Over TCP between a few hosts, where nobody has measured."""
LEAST_OVERHEAD_NS = 100_000
"""Links may be filled without a gap, but who sends, receives and adds has work with every piece:
taken to cost nothing, the smallest pieces would always be best."""

SLOWEST_RATE = 0.25
"""No estimate below this is believed."""
_SIGMA_OF_MEDIAN = 1.4826


@dataclass(frozen=True, slots=True, kw_only=True)
class P2PExchange:
    cost: TransferCost
    """For how long a message holds the link that has others before and behind it."""
    latency_ns: int
    """After that it is there."""
    compute_rate: float | None = None
    """How fast compute goes on beside it, if that was measured."""

    @property
    def network(self) -> Network:
        return Network(
            overhead_ns=round(self.cost.time_ns(0)),
            ns_per_byte=self.cost.ns_per_byte,
            latency_ns=self.latency_ns,
            spread=_SIGMA_OF_MEDIAN * self.cost.residual,
        )


def fit_p2p(costs: Costs, calibration: Sequence[Calibration]) -> P2PExchange | None:
    """Of two ranks. ``costs`` are those of the network in question, ``calibration`` is of the
    recorded one: what a message costs besides its bytes and its way is the same on both. None
    where nothing is known of the network."""
    alone = costs.get(OpKind.SEND)
    if alone is None:
        known = costs.get(OpKind.ALL_REDUCE)
        if known is None:
            return None
        # An all-reduce among two moves each byte once each way too.
        return P2PExchange(cost=_line(ASSUMED_OVERHEAD_NS, known), latency_ns=ASSUMED_LATENCY_NS)
    overhead_ns = _overhead_ns(calibration)
    return P2PExchange(
        cost=_line(overhead_ns, alone),
        latency_ns=max(0, round(alone.time_ns(0) - overhead_ns)),
        compute_rate=_compute_rate(alone, calibration),
    )


def _line(overhead_ns: float, cost: TransferCost) -> TransferCost:
    """No more bytes in a second than large ones have: what a rate limit lets through after a rest
    does not come again in a row of many."""
    return replace(cost, sizes_bytes=(0,), times_ns=(float(overhead_ns),))


def _overhead_ns(calibration: Sequence[Calibration]) -> float:
    """What each of many at once took more than its bytes."""
    alone = _alone(calibration)
    many = [row for row in _messages(calibration) if row.concurrent > 1]
    if alone is None or not many:
        return ASSUMED_OVERHEAD_NS
    found = [
        (float(np.median(row.durations_ns)) - alone.time_ns(row.size_bytes)) / (row.concurrent - 1)
        - alone.ns_per_byte * row.size_bytes
        for row in many
    ]
    return max(LEAST_OVERHEAD_NS, float(np.median(found)))


def _compute_rate(changed: TransferCost, calibration: Sequence[Calibration]) -> float | None:
    """What messages take from compute is processor time for their bytes: on a network that is
    slower than the measured one it is spread over a longer time."""
    alone = _alone(calibration)
    for row in _messages(calibration):
        if alone is not None and row.compute_rate is not None:
            pace = alone.time_ns(row.size_bytes) / max(1.0, changed.time_ns(row.size_bytes))
            return float(np.clip(1 - (1 - row.compute_rate) * pace, SLOWEST_RATE, 1.0))
    return None


def _alone(calibration: Sequence[Calibration]) -> TransferCost | None:
    """On the network that was measured."""
    return fit_transfers(
        [],
        [
            (row.size_bytes, float(ns))
            for row in _messages(calibration)
            if row.concurrent == 1 and not row.beside_compute
            for ns in row.durations_ns
        ],
    )


def _messages(calibration: Sequence[Calibration]) -> list[Calibration]:
    return [
        row
        for row in calibration
        if row.collective.upper() == OpKind.SEND.name and row.durations_ns
    ]
