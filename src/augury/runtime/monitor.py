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
ENOUGH = 0.2
"""Of a step's bytes, to go by them alone."""
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
    """What a piece took since the one before it had arrived. Pieces that did not have to queue
    behind another also wait for the slowest rank: they count only where there is nothing else to
    go by."""
    network = plan.problem.network
    queued, alone, until = _Sum(), _Sum(), -1
    for number, piece in enumerate(plan.order.pieces):
        issued, arrived = log.issued_ns[number], log.arrived_ns[number]
        if issued < 0 or arrived <= issued:
            # Of two ranks one may have what the other sends before it sends its own.
            until = max(until, arrived)
            continue
        share = 0.5 if piece.op in _HALVES else 1.0
        into, fixed_ns = queued, share * network.overhead_ns
        if issued > until:
            into, until, fixed_ns = alone, issued, fixed_ns + network.latency_ns
        into.time_ns += arrived - until - fixed_ns
        into.size_bytes += share * piece.size_bytes
        until = max(until, arrived)
    total_bytes = queued.size_bytes + alone.size_bytes
    if queued.size_bytes < ENOUGH * total_bytes:
        queued = _Sum(queued.time_ns + alone.time_ns, total_bytes)
    if queued.size_bytes == 0 or queued.time_ns <= 0:
        return None
    return queued.time_ns / queued.size_bytes


@dataclass(slots=True)
class _Sum:
    time_ns: float = 0.0
    size_bytes: float = 0.0


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
