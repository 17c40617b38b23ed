"""Observes the network and backward in logged steps, and detects drift from the plan."""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import fmean

from augury.core.enums import OpKind
from augury.core.plan.plan import CommunicationSection
from augury.core.plan.problem import Problem
from augury.runtime.meter import StepLog

MUCH = 1.35
"""Factor by which conditions must differ from the plan."""
STEPS_IN_A_ROW = 2
LOOK_BACK_STEPS = 8
"""Maximum age, in observed steps, of a known network rate. A late rank sees all pieces of its
peers arrive at once, so such a step shows no rate."""
ENOUGH = 0.2
"""Share of a step's bytes that queued pieces need, so that only they are used."""
_HALVES = (OpKind.REDUCE_SCATTER, OpKind.ALL_GATHER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """Observations of one step."""

    ns_per_byte: float | None
    """None where too few bytes were sent."""
    released_ns: tuple[int, ...]
    backward_ns: int

    @property
    def is_timed(self) -> bool:
        """Whether backward and all releases were timed."""
        return self.backward_ns > 0 and min(self.released_ns) >= 0


def observe(log: StepLog, section: CommunicationSection) -> Observed:
    return Observed(
        ns_per_byte=_ns_per_byte(log, section),
        released_ns=tuple(log.released_ns),
        backward_ns=log.backward_ns,
    )


def _ns_per_byte(log: StepLog, section: CommunicationSection) -> float | None:
    """Returns the time per byte since the arrival of the piece before. Pieces that did not queue
    behind another one also wait for the slowest rank: they count only where too few others are
    known."""
    network = section.problem.network
    queued, alone, until = _Sum(), _Sum(), -1
    for number, piece in enumerate(section.order.pieces):
        issued, arrived = log.issued_ns[number], log.arrived_ns[number]
        if issued < 0 or arrived <= issued:
            # Of two ranks, one may receive the share of the other before it sends its own.
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
    """Whether the last observations all differ much from a problem, in the same direction."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._last: list[Observed] = []
        self.why = ""

    def note(self, seen: Observed) -> None:
        self._last = [*self._last, seen][-LOOK_BACK_STEPS:]

    def changed_problem(self) -> Problem | None:
        """The problem as it is now, if conditions have changed. A change of backward waits until
        the network is known as well, for at most ``LOOK_BACK_STEPS`` steps: a search with an
        outdated network would find nothing."""
        recent = self._last[-STEPS_IN_A_ROW:]
        if len(recent) < STEPS_IN_A_ROW or not self._is_far(recent):
            return None
        rates = self._rates()
        if len(rates) < STEPS_IN_A_ROW and len(self._last) < LOOK_BACK_STEPS:
            return None
        problem = self._problem
        network = problem.network
        if rates:
            network = replace(network, ns_per_byte=fmean(rates))
        timed = [one for one in recent if one.is_timed]
        if not timed:
            return replace(problem, network=network)
        backward_ns = round(fmean(one.backward_ns for one in timed))
        released_ns = [fmean(ns) for ns in zip(*(one.released_ns for one in timed), strict=True)]
        pace = backward_ns / max(1, problem.backward_ns)
        forward_ns = round(problem.forward_ns * pace)
        return replace(
            problem,
            network=network,
            backward_ns=backward_ns,
            forward_ns=forward_ns,
            gradients=tuple(
                replace(
                    gradient,
                    release_ns=min(backward_ns, round(released)),
                    need_ns=min(forward_ns, round(gradient.need_ns * pace)),
                )
                for gradient, released in zip(problem.gradients, released_ns, strict=True)
            ),
        )

    def _rates(self) -> list[float]:
        """The last known rates, in ns per byte."""
        known = [one.ns_per_byte for one in self._last if one.ns_per_byte is not None]
        return known[-STEPS_IN_A_ROW:]

    def _is_far(self, recent: list[Observed]) -> bool:
        problem = self._problem
        for what, seen, planned in (
            ("the network takes", self._rates(), problem.network.ns_per_byte),
            (
                "backward takes",
                [float(one.backward_ns) for one in recent if one.is_timed],
                float(problem.backward_ns),
            ),
        ):
            if planned <= 0 or len(seen) < STEPS_IN_A_ROW:
                continue
            ratios = [one / planned for one in seen]
            if min(ratios) > MUCH or max(ratios) < 1 / MUCH:
                self.why = f"{what} {fmean(ratios):.2g} times as long as planned"
                return True
        return False
