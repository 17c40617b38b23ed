"""Cost of a piece that two ranks exchange by one message each way.

Messages queue on one connection. Ranks take no turns and nothing is summed on the way, so compute
does not delay them.
"""

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
"""Assumed for TCP between a few hosts, without calibration."""
LEAST_OVERHEAD_NS = 100_000
"""Lower limit of the overhead. Sending, receiving and adding take time for each piece even if the
link is never idle; without overhead the smallest pieces would always be best."""

SLOWEST_RATE = 0.25
"""Lower limit of estimated rates."""
_SIGMA_OF_MEDIAN = 1.4826


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerCosts:
    """Cost of one message of a sequence in both directions."""

    cost: TransferCost
    """Time that a message occupies the link, with others before and after it."""
    latency_ns: int
    """Time from then until the message has arrived."""
    compute_rate: float | None = None
    """Rate of compute during the exchange, if it was measured."""

    @property
    def network(self) -> Network:
        """The same cost as the network of a scheduling problem."""
        return Network(
            overhead_ns=round(self.cost.time_ns(0)),
            ns_per_byte=self.cost.ns_per_byte,
            latency_ns=self.latency_ns,
            spread=_SIGMA_OF_MEDIAN * self.cost.residual,
        )


def fit_p2p(costs: Costs, calibration: Sequence[Calibration]) -> PeerCosts | None:
    """Returns the cost of exchanges between two ranks; None if the network is unknown. ``costs``
    are of the network in question, ``calibration`` is of the recorded one: the overhead of a
    message is the same on both."""
    alone = costs.get(OpKind.SEND)
    if alone is None:
        known = costs.get(OpKind.ALL_REDUCE)
        if known is None:
            return None
        # An all-reduce of two ranks also moves each byte once in each direction.
        return PeerCosts(cost=_line(ASSUMED_OVERHEAD_NS, known), latency_ns=ASSUMED_LATENCY_NS)
    overhead_ns = _overhead_ns(calibration)
    return PeerCosts(
        cost=_line(overhead_ns, alone),
        latency_ns=max(0, round(alone.time_ns(0) - overhead_ns)),
        compute_rate=_compute_rate(alone, calibration),
    )


def _line(overhead_ns: float, cost: TransferCost) -> TransferCost:
    """Returns a cost linear in size. A burst that a rate limiter lets through after a pause does
    not recur in a sequence of messages."""
    return replace(cost, sizes_bytes=(0,), times_ns=(float(overhead_ns),))


def _overhead_ns(calibration: Sequence[Calibration]) -> float:
    """Returns the time per message beyond its bytes, from messages sent concurrently."""
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
    """Returns the rate of compute during messages. They take the same processor time for the same
    bytes: a network slower than the measured one spreads it over a longer time."""
    alone = _alone(calibration)
    for row in _messages(calibration):
        if alone is not None and row.compute_rate is not None:
            pace = alone.time_ns(row.size_bytes) / max(1.0, changed.time_ns(row.size_bytes))
            return float(np.clip(1 - (1 - row.compute_rate) * pace, SLOWEST_RATE, 1.0))
    return None


def _alone(calibration: Sequence[Calibration]) -> TransferCost | None:
    """Returns the cost of a single message on the measured network."""
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
