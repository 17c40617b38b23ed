"""Problems and Orders as flat arrays, the input of the evaluators."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from augury.core.columns import I4, I8, U1
from augury.core.enums import OpKind
from augury.core.errors import InputError
from augury.core.plan.plan import LAST_OPS, Order
from augury.core.plan.problem import Network, Problem

UNLIMITED_BYTES = 1 << 62
MAX_CLOCK_NS = float(1 << 61)
HALVES = (OpKind.REDUCE_SCATTER, OpKind.ALL_GATHER)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FlatProblem:
    release_ns: I8
    update_ns: I8
    size_bytes: I8
    segment_ns: I8
    """Forward up to the first need, from each need to the next, and from the last to the end."""
    begin_ns: int
    """Earliest start of forward, without updates."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FlatOrder:
    """The slices of piece ``p`` are ``first[p]`` up to ``first[p + 1]``."""

    link: U1
    """1 for pulls, 0 for all others."""
    is_last: U1
    after: I4
    lag_ns: I8
    """Time of the server between ``after`` and this piece."""
    not_before_ns: I8
    hold_ns: I8
    size_bytes: I8
    first: I4
    gradient: I4
    slice_bytes: I8
    latency_ns: int
    window_bytes: int
    has_barrier: bool


def flat_problem(problem: Problem) -> FlatProblem:
    gradients = problem.gradients
    needs = [gradient.need_ns for gradient in gradients]
    return FlatProblem(
        release_ns=np.array([gradient.release_ns for gradient in gradients], np.int64),
        update_ns=np.array([gradient.update_ns for gradient in gradients], np.int64),
        size_bytes=np.array([gradient.size_bytes for gradient in gradients], np.int64),
        segment_ns=np.array(
            [later - need for need, later in pairwise([0, *needs, problem.forward_ns])], np.int64
        ),
        begin_ns=problem.backward_ns + problem.between_ns,
    )


def flat_order(order: Order, network: Network) -> FlatOrder:
    """``order`` has passed ``verify_order``."""
    pieces = order.pieces
    slices = list(chain.from_iterable(piece.slices for piece in pieces))
    first = np.zeros(len(pieces) + 1, np.int32)
    np.cumsum([len(piece.slices) for piece in pieces], out=first[1:])
    slice_bytes = np.array([part.size_bytes for part in slices], np.int64)
    size_bytes = np.add.reduceat(slice_bytes, first[:-1]) if pieces else slice_bytes
    op = np.array([piece.op for piece in pieces], np.int64)
    is_pull = op == OpKind.PULL
    return FlatOrder(
        link=is_pull.astype(np.uint8),
        is_last=np.isin(op, LAST_OPS).astype(np.uint8),
        after=np.array([piece.after for piece in pieces], np.int32),
        lag_ns=np.where(is_pull, server_ns(network, size_bytes), 0),
        not_before_ns=np.array([piece.not_before_ns for piece in pieces], np.int64),
        hold_ns=hold_ns(network, size_bytes, np.where(np.isin(op, HALVES), 2, 1)),
        size_bytes=size_bytes,
        first=first,
        gradient=np.array([part.gradient for part in slices], np.int32),
        slice_bytes=slice_bytes,
        latency_ns=network.latency_ns,
        window_bytes=order.window_bytes or UNLIMITED_BYTES,
        has_barrier=order.has_barrier,
    )


def hold_ns(network: Network, size_bytes: I8, parts: I8 | int) -> I8:
    """How long each message holds its link, rounded up once: a bound that adds exact times
    stays one."""
    return _whole((network.overhead_ns + network.ns_per_byte * size_bytes) / parts)


def server_ns(network: Network, size_bytes: I8) -> I8:
    return _whole(network.server_ns_per_byte * size_bytes)


def _whole(exact_ns: NDArray[np.floating[Any]]) -> I8:
    if exact_ns.sum() > MAX_CLOCK_NS:
        raise InputError(
            "communication would take longer than the clock reaches",
            remedy="check the network's bandwidth and the gradients' sizes",
        )
    whole_ns: I8 = np.ceil(exact_ns).astype(np.int64)
    return whole_ns
