"""What completions tell of the network, and whether that is still what the plan assumes."""

from __future__ import annotations

from dataclasses import dataclass, replace

from augury.core.kinds import OpKind
from augury.core.plan import Plan
from augury.core.problem import Problem
from augury.runtime.meter import StepLog

WEIGHT = 0.5
"""Of the newest step in the running mean: two steps after a change it is three quarters of it."""
MUCH = 1.35
"""By this factor things have changed."""
STEPS_IN_A_ROW = 2
_HALVES = (OpKind.REDUCE_SCATTER, OpKind.ALL_GATHER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """One step."""

    ns_per_byte: float | None
    """None where too little was sent to tell."""
    released_ns: tuple[int, ...]
    backward_ns: int


def observe(log: StepLog, plan: Plan) -> Observed:
    return Observed(
        ns_per_byte=_ns_per_byte(log, plan),
        released_ns=tuple(log.released_ns),
        backward_ns=log.backward_ns,
    )


def _ns_per_byte(log: StepLog, plan: Plan) -> float | None:
    """Over the times in which the link had something to do: from the first piece that was issued
    while nothing was under way to the moment when all had arrived."""
    overhead_ns, latency_ns = plan.problem.network.overhead_ns, plan.problem.network.latency_ns
    seen = sorted(
        (issued, arrived, piece.size_bytes, 0.5 if piece.op in _HALVES else 1.0)
        for issued, arrived, piece in zip(
            log.issued_ns, log.arrived_ns, plan.order.pieces, strict=True
        )
        if issued >= 0 and arrived > issued
    )
    busy_ns, num_bytes, until = 0.0, 0.0, -1
    for issued, arrived, size_bytes, share in seen:
        busy_ns += max(0, arrived - max(issued, until)) - share * overhead_ns
        busy_ns -= latency_ns if issued > until else 0
        num_bytes += share * size_bytes
        until = max(until, arrived)
    if num_bytes == 0 or busy_ns <= 0:
        return None
    return busy_ns / num_bytes


class Drift:
    """Follows a running mean of what was observed."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._ns_per_byte: float | None = None
        self._released_ns: list[float] = []
        self._backward_ns: float | None = None
        self._num_far = 0
        self.why = ""

    def note(self, seen: Observed) -> None:
        if seen.ns_per_byte is not None:
            self._ns_per_byte = _mean(self._ns_per_byte, seen.ns_per_byte)
        if seen.backward_ns > 0 and min(seen.released_ns) >= 0:
            if not self._released_ns:
                self._released_ns = [float(ns) for ns in seen.released_ns]
            self._released_ns = [
                _mean(before, now)
                for before, now in zip(self._released_ns, seen.released_ns, strict=True)
            ]
            self._backward_ns = _mean(self._backward_ns, seen.backward_ns)
        self._num_far = self._num_far + 1 if self._is_far() else 0

    def _is_far(self) -> bool:
        problem = self._plan.problem
        ratios = [
            ("the network takes", self._ns_per_byte, problem.network.ns_per_byte),
            ("backward takes", self._backward_ns, problem.backward_ns),
        ]
        for what, now, planned in ratios:
            if now is not None and planned > 0 and not 1 / MUCH < now / planned < MUCH:
                self.why = f"{what} {now / planned:.2g} times as long as planned"
                return True
        return False

    def changed_problem(self) -> Problem | None:
        """What to plan for instead, if things have changed for good."""
        if self._num_far < STEPS_IN_A_ROW:
            return None
        problem = self._plan.problem
        network = problem.network
        if self._ns_per_byte is not None:
            network = replace(network, ns_per_byte=self._ns_per_byte)
        if self._backward_ns is None:
            return replace(problem, network=network)
        backward_ns = round(self._backward_ns)
        pace = backward_ns / max(1, problem.backward_ns)
        return replace(
            problem,
            network=network,
            backward_ns=backward_ns,
            forward_ns=round(problem.forward_ns * pace),
            gradients=tuple(
                replace(
                    gradient,
                    release_ns=min(backward_ns, round(released)),
                    need_ns=min(round(problem.forward_ns * pace), round(gradient.need_ns * pace)),
                )
                for gradient, released in zip(problem.gradients, self._released_ns, strict=True)
            ),
        )


def _mean(before: float | None, now: float) -> float:
    return now if before is None else (1 - WEIGHT) * before + WEIGHT * now
