"""The optimal order for small cases: every grouping of given slices into messages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from augury.core.errors import UsageError
from augury.core.plan.plan import Order, Slice
from augury.core.plan.problem import Problem, Scheme
from augury.schedule.evaluate import step_ns
from augury.schedule.flat_arrays import hold_ns, server_ns
from augury.schedule.order_parts import exchanged, whole

MAX_SLICES = 10


@dataclass(frozen=True, slots=True)
class _Sent:
    """Messages so far: when each link is free again, and the step implied by the arrivals."""

    free_ns: int
    back_ns: int
    value_ns: int
    messages: tuple[int, ...]

    def is_no_worse(self, other: _Sent) -> bool:
        return (
            self.free_ns <= other.free_ns
            and self.back_ns <= other.back_ns
            and self.value_ns <= other.value_ns
        )


def optimum(problem: Problem, slices: Sequence[Slice] | None = None) -> Order:
    """Of all orders that send these slices (whole gradients, if nothing is said) in messages, the
    one with the shortest step; fewest messages among equals. With a parameter server, of those
    that pull as they pushed.

    Sets of slices that have been sent are gone through from the empty one. Of two ways to have
    sent the same set, one that leaves no link free earlier and implies no shorter step is dropped.
    Where updates take time, an earlier arrival may do harm, as an update is not preempted: nothing
    is dropped then but what cannot beat the best order found."""
    parts = (
        slices if slices is not None else [whole(problem, n) for n in range(len(problem.gradients))]
    )
    if len(parts) > MAX_SLICES:
        raise UsageError(
            f"the best order of {len(parts)} slices", remedy=f"give at most {MAX_SLICES}"
        )
    return _Sets(problem, tuple(parts)).best()


class _Sets:
    """Sets are bit masks of slices."""

    def __init__(self, problem: Problem, parts: tuple[Slice, ...]) -> None:
        self.problem, self.parts = problem, parts
        self.everything = (1 << len(parts)) - 1
        gradients, network = problem.gradients, problem.network
        masks = range(1 << len(parts))
        size_bytes = np.array([self._size(mask) for mask in masks], np.int64)
        self.hold_ns = hold_ns(network, size_bytes, 1).tolist()
        self.server_ns = server_ns(network, size_bytes).tolist()
        self.release_ns = [
            max((gradients[part.gradient].release_ns for part in self._of(mask)), default=0)
            for mask in masks
        ]
        self.of_gradient = [0] * len(gradients)
        for nth, part in enumerate(parts):
            self.of_gradient[part.gradient] |= 1 << nth
        self.tail_ns = [
            gradient.update_ns + problem.forward_ns - gradient.need_ns for gradient in gradients
        ]
        self.is_served = network.scheme is Scheme.PARAMETER_SERVER
        self.has_updates = any(gradient.update_ns for gradient in gradients)

    def best(self) -> Order:
        best = self._order(tuple(1 << nth for nth in range(len(self.parts))))
        best_ns = step_ns(self.problem, best)
        ways: list[list[_Sent]] = [[] for _ in range(self.everything + 1)]
        ways[0].append(_Sent(0, 0, self.problem.compute_ns, ()))
        for mask, sent_so_far in enumerate(ways):
            for sent in sent_so_far:
                if sent.value_ns > best_ns:
                    continue
                for message in _subsets(self.everything & ~mask):
                    now = self._send(sent, mask, message)
                    if now.value_ns > best_ns:
                        continue
                    if mask | message != self.everything:
                        self._keep(ways[mask | message], now)
                        continue
                    order = self._order(now.messages)
                    found_ns = step_ns(self.problem, order)
                    if (found_ns, len(order.pieces)) < (best_ns, len(best.pieces)):
                        best, best_ns = order, found_ns
            sent_so_far.clear()
        return best

    def _send(self, sent: _Sent, mask: int, message: int) -> _Sent:
        latency_ns = self.problem.network.latency_ns
        free_ns = max(sent.free_ns, self.release_ns[message]) + self.hold_ns[message]
        there_ns = free_ns + latency_ns
        back_ns = sent.back_ns
        if self.is_served:
            there_ns += self.server_ns[message]
            back_ns = max(back_ns, there_ns) + self.hold_ns[message]
            there_ns = back_ns + latency_ns
        value_ns = sent.value_ns
        for gradient, its in enumerate(self.of_gradient):
            if its & message and not its & ~(mask | message):
                value_ns = max(value_ns, there_ns + self.tail_ns[gradient])
        return _Sent(free_ns, back_ns, value_ns, (*sent.messages, message))

    def _keep(self, ways: list[_Sent], new: _Sent) -> None:
        if not self.has_updates:
            if any(old.is_no_worse(new) for old in ways):
                return
            ways[:] = [old for old in ways if not new.is_no_worse(old)]
        ways.append(new)

    def _order(self, messages: tuple[int, ...]) -> Order:
        pieces = exchanged(self.problem, [tuple(self._of(message)) for message in messages])
        return Order(policy="optimum", pieces=pieces, has_barrier=False)

    def _of(self, mask: int) -> Iterator[Slice]:
        return (part for nth, part in enumerate(self.parts) if mask >> nth & 1)

    def _size(self, mask: int) -> int:
        return sum(part.size_bytes for part in self._of(mask))


def _subsets(mask: int) -> Iterator[int]:
    """All but the empty one."""
    subset = mask
    while subset:
        yield subset
        subset = (subset - 1) & mask
