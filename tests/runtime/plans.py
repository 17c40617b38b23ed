"""Plans for models that need not exist, as `augury schedule` would write them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from augury.core.enums import OpKind
from augury.core.plan.plan import (
    CommunicationSection,
    Mode,
    Order,
    Piece,
    Plan,
    Slice,
    communication_of,
    communication_plan,
)
from augury.core.plan.problem import Gradient, Network, Problem


def plan_for(
    sizes: dict[str, int],
    *,
    mode: Mode = Mode.PIECES,
    caps: tuple[int, ...] = (),
    num_ranks: int = 2,
) -> Plan:
    """Plan for gradients in forward order with these bytes; two halves of each."""
    last = len(sizes)
    problem = Problem(
        gradients=tuple(
            Gradient(
                name=name,
                size_bytes=size_bytes,
                release_ns=100_000 * (last - n),
                need_ns=50_000 * n,
            )
            for n, (name, size_bytes) in enumerate(sizes.items())
        ),
        backward_ns=100_000 * last,
        forward_ns=50_000 * last,
        network=Network(ns_per_byte=1.0, overhead_ns=100_000),
    )
    pieces = []
    for number, size_bytes in enumerate(sizes.values()):
        half = size_bytes // 8 * 4
        for offset_bytes, part_bytes in ((0, half), (half, size_bytes - half)):
            part = Slice(gradient=number, offset_bytes=offset_bytes, size_bytes=part_bytes)
            pieces.append(Piece(op=OpKind.ALL_REDUCE, slices=(part,)))
    section = CommunicationSection(
        mode=mode,
        problem=problem,
        order=Order(policy="augury", pieces=tuple(reversed(pieces)), has_barrier=False),
        bucket_caps_bytes=caps,
    )
    return communication_plan(section, num_ranks=num_ranks)


def with_order(plan: Plan, **changes: Any) -> Plan:
    """Returns the plan with fields of its order changed."""
    section = communication_of(plan)
    section = replace(section, order=replace(section.order, **changes))
    return replace(plan, communication=section)
