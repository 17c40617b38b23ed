"""The inputs of the search: a Problem as arrays of releases, work, tails and costs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from augury.core.columns import I8
from augury.core.plan.problem import Problem, Scheme

Floats = NDArray[np.float64]
_LEAST_NS_PER_BYTE = 1e-9
"""Lower limit, so that sizes stay finite where bytes take no time."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Terms:
    """Arrays of floats; the resulting orders are evaluated exactly afterwards."""

    release_ns: Floats
    size_bytes: I8
    item_bytes: I8
    work_ns: Floats
    """Time that each gradient holds a link, without the overhead of its message."""
    forward_ns: Floats
    """Forward from the need of each gradient on."""
    update_ns: Floats
    ns_per_byte: float
    overhead_ns: float
    latency_ns: float
    server_share: float
    """Time of the server, as a share of the transfer."""
    is_served: bool
    spread: float
    """Spread of transfers, as a share."""
    spread_ns: float
    """Spread of releases."""

    def tail_ns(self, share_behind: float) -> Floats:
        """Returns the time from each arrival to the end of the step: its update, this share of the
        updates of all later gradients (the others were done while waiting), and forward. A tail
        is no shorter than those of later gradients, which are sent later."""
        behind_ns = np.cumsum(self.update_ns[::-1])[::-1] - self.update_ns
        tail_ns = self.forward_ns + self.update_ns + share_behind * behind_ns
        return np.maximum.accumulate(tail_ns[::-1])[::-1]


def terms_of(problem: Problem) -> Terms:
    network, gradients = problem.network, problem.gradients
    ns_per_byte = max(network.ns_per_byte, _LEAST_NS_PER_BYTE)
    size_bytes = np.array([gradient.size_bytes for gradient in gradients], np.int64)
    need_ns = np.array([gradient.need_ns for gradient in gradients], np.float64)
    return Terms(
        release_ns=np.array([gradient.release_ns for gradient in gradients], np.float64),
        size_bytes=size_bytes,
        item_bytes=np.array([gradient.item_bytes for gradient in gradients], np.int64),
        work_ns=(ns_per_byte * size_bytes).astype(np.float64),
        forward_ns=problem.forward_ns - need_ns,
        update_ns=np.array([gradient.update_ns for gradient in gradients], np.float64),
        ns_per_byte=ns_per_byte,
        overhead_ns=float(network.overhead_ns),
        latency_ns=float(network.latency_ns),
        server_share=network.server_ns_per_byte / ns_per_byte,
        is_served=network.scheme is Scheme.PARAMETER_SERVER,
        spread=network.spread,
        spread_ns=float(np.median([gradient.spread_ns for gradient in gradients])),
    )
