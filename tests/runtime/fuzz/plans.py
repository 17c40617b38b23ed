"""Random valid plans of every kind for a model."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from random import Random
from typing import Any

from augury.core.enums import OpKind
from augury.core.plan.plan import (
    CommunicationSection,
    Mode,
    Order,
    Piece,
    Plan,
    Slice,
    communication_plan,
)
from augury.core.plan.plan_spec import verify_order
from augury.core.plan.problem import Gradient, Network, Problem
from augury.runtime.torch.program.parameter_names import own_parameters
from augury.schedule.policies.registry import find_policy
from tests.runtime.fuzz.program import PlanChoice

OWN_KINDS = ("random", "halves", "mixed", "buckets")
FALLBACK_POLICY = "augury"
"""What re-plans orders that no policy has made."""


def make_plan(choice: PlanChoice, module: Any, num_ranks: int) -> Plan:
    """``module`` is what DistributedDataParallel wraps."""
    random = Random(choice.seed)
    parameters = {n: p for n, p in own_parameters(module).items() if p.requires_grad}
    problem = _problem(random, choice, parameters)
    if choice.kind == "buckets":
        order = _order(random, replace(choice, kind="random"), problem, parameters)
        caps = tuple(random.choice((64, 500, 4000, 1 << 20)) for _ in range(random.randint(1, 4)))
        section = CommunicationSection(
            mode=Mode.DDP_BUCKETS, problem=problem, order=order, bucket_caps_bytes=caps
        )
        return communication_plan(section, num_ranks=num_ranks)
    if choice.kind in OWN_KINDS:
        order = _order(random, choice, problem, parameters)
    else:
        order = replace(find_policy(choice.kind).compile(problem), lanes=choice.lanes)
    verify_order(order, problem)
    section = CommunicationSection(mode=Mode.PIECES, problem=problem, order=order)
    return communication_plan(section, num_ranks=num_ranks)


def _problem(random: Random, choice: PlanChoice, parameters: dict[str, Any]) -> Problem:
    """Released and needed in the order of the model, at random times."""
    last = len(parameters)
    pace_ns = random.choice((1_000, 30_000, 1_000_000))
    return Problem(
        gradients=tuple(
            Gradient(
                name=name,
                size_bytes=p.nbytes,
                item_bytes=p.element_size(),
                release_ns=pace_ns * (last - n),
                need_ns=pace_ns // 2 * n,
            )
            for n, (name, p) in enumerate(parameters.items())
        ),
        backward_ns=pace_ns * last,
        forward_ns=pace_ns // 2 * last,
        network=Network(ns_per_byte=choice.ns_per_byte, overhead_ns=random.choice((0, 100_000))),
    )


def _order(
    random: Random, choice: PlanChoice, problem: Problem, parameters: dict[str, Any]
) -> Order:
    slices = _slices(random, problem)
    style = random.choice(("shuffled", "release", "urgent"))
    if style == "shuffled":
        random.shuffle(slices)
    elif style == "release":
        slices.sort(key=lambda part: (-part.gradient, part.offset_bytes))
    dtypes = [p.dtype for p in parameters.values()]
    pieces: list[Piece] = []
    incomplete: list[int] = []
    for message in _messages(random, slices, dtypes):
        while incomplete and random.random() < 0.3:
            _complete(random, choice, pieces, incomplete)
        is_half = {"random": False, "halves": True}.get(choice.kind, random.random() < 0.5)
        op = OpKind.REDUCE_SCATTER if is_half else OpKind.ALL_REDUCE
        if is_half:
            incomplete.append(len(pieces))
        pieces.append(Piece(op=op, slices=message, not_before_ns=_mark(random, choice, problem)))
    while incomplete:
        _complete(random, choice, pieces, incomplete)
    return Order(
        policy=FALLBACK_POLICY,
        pieces=tuple(pieces),
        has_barrier=choice.has_barrier,
        window_bytes=random.choice((None, None, problem.size_bytes)),
        lanes=choice.lanes,
    )


def _slices(random: Random, problem: Problem) -> list[Slice]:
    found = []
    cuts_each = random.choice((0, 1, 3))
    for place, gradient in enumerate(problem.gradients):
        num_items = gradient.size_bytes // gradient.item_bytes
        cuts = {random.randint(1, num_items) for _ in range(random.randint(0, cuts_each))}
        edges = [0, *sorted(cut for cut in cuts if cut < num_items), num_items]
        found += [
            Slice(
                gradient=place,
                offset_bytes=begin * gradient.item_bytes,
                size_bytes=(end - begin) * gradient.item_bytes,
            )
            for begin, end in pairwise(edges)
        ]
    return found


def _messages(random: Random, slices: list[Slice], dtypes: list[Any]) -> list[tuple[Slice, ...]]:
    """Runs of slices; a message has one dtype."""
    joins = random.choice((0.0, 0.5, 0.9))
    messages: list[list[Slice]] = [[]]
    for part in slices:
        last = messages[-1]
        if last and (
            random.random() >= joins or dtypes[last[-1].gradient] is not dtypes[part.gradient]
        ):
            messages.append([])
        messages[-1].append(part)
    return [tuple(message) for message in messages]


def _complete(
    random: Random, choice: PlanChoice, pieces: list[Piece], incomplete: list[int]
) -> None:
    place = incomplete.pop(random.randrange(len(incomplete)))
    pieces.append(
        Piece(
            op=OpKind.ALL_GATHER,
            slices=pieces[place].slices,
            after=place,
            not_before_ns=_mark(random, choice, pieces),
        )
    )


def _mark(random: Random, choice: PlanChoice, _what: Any) -> int:
    if not choice.has_marks or random.random() < 0.5:
        return 0
    return random.choice((1_000, 100_000, 2_000_000))
