"""The policy `mg-wfbp`: merged-gradient wait-free backpropagation."""

from __future__ import annotations

from dataclasses import dataclass

from augury.core.plan.plan import Order, Slice
from augury.core.plan.problem import Problem
from augury.schedule.order_parts import Message, exchanged, release_order, whole


@dataclass(frozen=True, slots=True, kw_only=True)
class MgWfbp:
    """Published: a message of s bytes takes ``alpha + beta s``. Gradients are taken in the
    order of release; one is merged into the next if the next is released before its transfer
    could start, or less than alpha after that: then waiting costs less than a second message.
    First come first served, with a barrier.

    Assumed: alpha is the time that a message holds the link beyond its bytes, since latency does
    not delay the next one; layers are single gradients; with a parameter server the rule is
    applied to pushes, and pulls follow them.
    """

    name: str = "mg-wfbp"

    def compile(self, problem: Problem) -> Order:
        return Order(
            policy=self.name,
            pieces=exchanged(problem, self._merged(problem)),
            has_barrier=True,
        )

    def _merged(self, problem: Problem) -> list[Message]:
        messages: list[Message] = []
        alpha_ns, beta_ns = problem.network.overhead_ns, problem.network.ns_per_byte
        link_free_ns = start_ns = 0.0
        held_bytes = 0
        held: list[Slice] = []
        for place in release_order(problem):
            gradient = problem.gradients[place]
            if held and gradient.release_ns >= start_ns + alpha_ns:
                messages.append(tuple(held))
                link_free_ns = start_ns + alpha_ns + beta_ns * held_bytes
                held, held_bytes = [], 0
            held.append(whole(problem, place))
            held_bytes += gradient.size_bytes
            start_ns = max(link_free_ns, gradient.release_ns)
        return [*messages, tuple(held)]
