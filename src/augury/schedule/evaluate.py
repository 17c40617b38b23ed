"""Evaluates an Order under a Problem: the predicted step and the times of all pieces.

The Problem may differ from the one that the Order was made for. Times are exact to the nanosecond,
from the kernel where it was built, else from the reference.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from augury.core.columns import I8
from augury.core.plan.plan import Order
from augury.core.plan.problem import Problem, Scheme
from augury.schedule.evaluate_reference import times_of
from augury.schedule.flat_arrays import FlatOrder, flat_order, flat_problem
from augury.schedule.search.byte_line import Line, flat_line

try:
    from augury import _native
except ImportError:  # no compiler where this was installed
    _native = None  # type: ignore[assignment]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Outcome:
    """Times of an evaluated Order, from the start of backward."""

    step_ns: int
    waiting_ns: int
    """Time that the main thread waits for communication after backward."""
    start_ns: I8
    """Start of each piece; the next two are by piece, too."""
    end_ns: I8
    """When the piece frees its link."""
    arrive_ns: I8
    arrived_ns: I8
    """Arrival of the last slice of each gradient."""
    link_busy_ns: int
    """Busy time of the busier link."""


def evaluate(problem: Problem, order: Order) -> Outcome:
    """``order`` has passed ``verify_order`` for a Problem with the same gradients."""
    return Evaluator(problem).outcome(flat_order(order, problem.network))


def step_ns(problem: Problem, order: Order) -> int:
    return Evaluator(problem).step_ns(flat_order(order, problem.network))


class Evaluator:
    """Evaluates many Orders under one Problem."""

    def __init__(self, problem: Problem) -> None:
        self._flat = flat_problem(problem)
        flat = self._flat
        network = problem.network
        self._problem = problem
        self._native = None
        if _native is not None:
            self._native = _native.NativeProblem(
                flat.release_ns,
                flat.update_ns,
                flat.size_bytes,
                flat.segment_ns,
                flat.begin_ns,
                network.overhead_ns,
                network.ns_per_byte,
                network.server_ns_per_byte,
                network.latency_ns,
            )

    def step_ns(self, order: FlatOrder) -> int:
        if self._native is None:
            return times_of(self._flat, order).step_ns
        return self._native.evaluate(**_columns(order))[0]

    def line_step_ns(self, line: Line, cuts: I8, back: I8 | None = None) -> int:
        """As ``step_ns`` of ``flat_line``, without building it: a search calls this often."""
        if self._native is None:
            return self.step_ns(flat_line(self._problem, line, cuts, back))
        if back is None and self._problem.network.scheme is Scheme.PARAMETER_SERVER:
            back = np.arange(len(cuts))
        return self._native.line_step_ns(line.gradient, line.end_bytes, cuts, back)

    def outcome(self, order: FlatOrder) -> Outcome:
        start_ns = np.empty(len(order.link), np.int64)
        arrive_ns = np.empty(len(order.link), np.int64)
        arrived_ns = np.empty(len(self._flat.release_ns), np.int64)
        if self._native is None:
            times = times_of(self._flat, order)
            found = times.step_ns, times.waiting_ns
            start_ns[:], arrive_ns[:] = times.start_ns, times.arrive_ns
            arrived_ns[:] = times.arrived_ns
        else:
            found = self._native.evaluate(
                **_columns(order),
                start_ns=start_ns,
                arrive_ns=arrive_ns,
                arrived_ns=arrived_ns,
            )
        on_pull_link = order.link.astype(bool)
        return Outcome(
            step_ns=found[0],
            waiting_ns=found[1],
            start_ns=start_ns,
            end_ns=start_ns + order.hold_ns,
            arrive_ns=arrive_ns,
            arrived_ns=arrived_ns,
            link_busy_ns=max(
                int(order.hold_ns[on_pull_link].sum()), int(order.hold_ns[~on_pull_link].sum())
            ),
        )


def _columns(order: FlatOrder) -> dict[str, Any]:
    return {field.name: getattr(order, field.name) for field in fields(order)}
