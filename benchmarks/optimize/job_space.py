"""The space of a job for the search: modules to compile, and orders of gradients compiled for them.

Unlike the space of a recorded run, it has parameter servers, and compiled modules go together with
ordered pieces. A candidate is evaluated exactly, by the evaluator of orders.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property

from augury.core.plan.plan import FIRST_OPS, Order, PlanSection
from augury.core.plan.problem import Problem
from augury.optimize.space import Candidate, Decision, Evaluated
from augury.schedule.evaluate import step_ns
from augury.schedule.order_parts import by_priority
from augury.schedule.policies.augury import Augury
from augury.schedule.policies.bucket_list import BucketList
from augury.schedule.policies.mg_wfbp import MgWfbp
from benchmarks.optimize.job import Job

SIZES_BYTES = tuple(250_000 << doubled for doubled in range(9))
WHOLE = "the whole network"

Compiler = Callable[[Job, Problem], Iterable[Order]]
"""Returns orders for a problem of a job."""


def by_size(job: Job, problem: Problem) -> Iterator[Order]:
    """Yields tensor fusion and partition: gradients in the order of release, in other messages."""
    for size_bytes in SIZES_BYTES:
        yield job.order_of_sizes(problem, size_bytes)
    for policy in (BucketList(), MgWfbp()):
        yield replace(policy.compile(problem), has_barrier=job.has_barrier)


def by_need(job: Job, problem: Problem) -> Iterator[Order]:
    """Yields the default messages in the order in which forward needs them; forward waits layer by
    layer."""
    pieces = job.default_order(problem).pieces
    messages = [piece.slices for piece in pieces if piece.op in FIRST_OPS]
    messages.sort(key=lambda parts: min(part.gradient for part in parts))
    yield Order(
        policy="urgent first",
        pieces=by_priority(problem, messages, window_bytes=None),
        has_barrier=False,
    )


def by_size_or_need(job: Job, problem: Problem) -> Iterator[Order]:
    """Yields what is quick to compile."""
    yield from by_size(job, problem)
    yield from by_need(job, problem)


def by_size_and_need(job: Job, problem: Problem) -> Iterator[Order]:
    """Yields all of these, and the order that our own search for orders finds."""
    yield from by_size_or_need(job, problem)
    yield Augury().compile(problem)


class JobSpace:
    """Choices of modules, one each, and the choice of an order."""

    def __init__(
        self,
        job: Job,
        *,
        fuses: bool = True,
        compiler: Compiler | None = None,
        order: Order | None = None,
        compiled: Iterable[range] = (),
    ) -> None:
        """``order`` and ``compiled`` are the ones to start with, instead of the defaults."""
        self.job, self._compiler, self._always = job, compiler, tuple(compiled)
        self._modules = self._candidates() if fuses else []
        start = self.problem_of((0,) * (len(self._modules) + 1))
        self._orders = [order or job.default_order(start)]
        first = self._orders[0]
        self._number_of = {(first.pieces, first.has_barrier): 0}
        self._compiled: dict[Candidate, list[Candidate]] = {}
        self.num_evaluated = 0

    @cached_property
    def _fusions(self) -> list[Decision]:
        layers = self.job.network.layers
        return [
            Decision(
                section=PlanSection.FUSION,
                name=name,
                num_options=2,
                weight_ns=sum(layers[i].forward_ns + layers[i].backward_ns for i in places),
                excludes=tuple(
                    other
                    for other, (_, others) in enumerate(self._modules)
                    if other != number and set(others) & set(places)
                ),
            )
            for number, (name, places) in enumerate(self._modules)
        ]

    @property
    def decisions(self) -> Sequence[Decision]:
        return [
            *self._fusions,
            Decision(
                section=PlanSection.COMMUNICATION, name="order", num_options=len(self._orders)
            ),
        ]

    def compiled_modules(self, candidate: Candidate) -> tuple[range, ...]:
        chosen = zip(self._modules, candidate, strict=False)
        return (*self._always, *(places for (_, places), option in chosen if option))

    def problem_of(self, candidate: Candidate) -> Problem:
        return self.job.problem(self.compiled_modules(candidate))

    def order_of(self, candidate: Candidate) -> Order:
        return self._orders[candidate[-1]]

    def evaluate(self, candidate: Candidate) -> Evaluated:
        self.num_evaluated += 1
        return Evaluated(step_ns=step_ns(self.problem_of(candidate), self.order_of(candidate)))

    def estimate(self, _candidates: Sequence[Candidate]) -> None:
        """Evaluations are quick enough."""

    def compiled(self, candidate: Candidate) -> list[Candidate]:
        """Returns the candidate with each order that is compiled for its modules."""
        if self._compiler is None:
            return []
        if candidate[:-1] not in self._compiled:
            self._compiled[candidate[:-1]] = self._compile(candidate)
        return self._compiled[candidate[:-1]]

    def _compile(self, candidate: Candidate) -> list[Candidate]:
        assert self._compiler is not None
        found = []
        for order in self._compiler(self.job, self.problem_of(candidate)):
            key = (order.pieces, order.has_barrier)
            if key not in self._number_of:
                self._number_of[key] = len(self._orders)
                self._orders.append(order)
            found.append((*candidate[:-1], self._number_of[key]))
        return list(dict.fromkeys(found))

    def _candidates(self) -> list[tuple[str, range]]:
        """Returns the modules that compiled take less time, and the whole network."""
        network = self.job.network
        known = network.modules() | {WHOLE: range(len(network.layers))}
        found: dict[range, str] = {}
        for name, places in known.items():
            alone_ns = sum(
                network.layers[i].forward_ns + network.layers[i].backward_ns for i in places
            )
            if sum(network.compiled_ns(places)) < alone_ns:
                found.setdefault(places, name)
        return [(name, places) for places, name in found.items()]
