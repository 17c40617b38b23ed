"""The executable specification of a Graph: finds and describes violations of its rules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from augury.core.enums import OpKind, Role
from augury.core.errors import GraphError
from augury.core.graph.cycles import find_cycle
from augury.core.graph.graph import NONE, RATE_ONE, Graph
from augury.core.graph.table_rules import (
    REFERENCE_RULES,
    SHAPE_RULES,
    Rule,
    Violation,
    found,
)
from augury.core.units import format_bytes, format_ns

MAX_WORK_NS = 1 << 42
"""Longest duration of one operation (73 minutes). A longer one is a mistake of units, and its
remaining work in fixed point would not fit 64 bits."""

MAX_TOTAL_WORK_NS = 1 << 52
"""Longest sum of all durations (52 days)."""

MAX_SLOWED_NS = 1 << 60
"""Longest sum of all durations at their slowest rates. The clock has 64 bits, and the rounding of
rates needs some of them."""

MAX_RANK_BYTES = 1 << 62
"""Largest sum of the buffers of one rank; a larger one could overflow."""

POINT_TO_POINT = {OpKind.SEND, OpKind.RECV, OpKind.PUSH, OpKind.PULL}


def check(graph: Graph) -> list[Violation]:
    """Returns all violations. Later rules run only if earlier ones found the data readable."""
    return _run_stages(graph, _STAGES)


def verify(graph: Graph) -> None:
    """Raises GraphError if the graph violates a rule."""
    _refuse(check(graph))


def verify_durations(graph: Graph, base: Graph) -> None:
    """Raises GraphError if a duration violates a rule. ``graph`` is ``base``, which has been
    verified, with other durations: a replay session makes thousands of such graphs."""
    is_changed = graph.ops.work_ns != base.ops.work_ns
    rules = (_gang_agreement,) if (graph.ops.gang[is_changed] >= 0).any() else ()
    _refuse(_run_stages(graph, ((_durations,), (*rules, _slowest))))


def _run_stages(graph: Graph, stages: Iterable[Iterable[Rule]]) -> list[Violation]:
    violations: list[Violation] = []
    for stage in stages:
        for rule in stage:
            violations.extend(rule(graph))
        if violations:
            break
    return violations


def _refuse(violations: list[Violation]) -> None:
    if not violations:
        return
    described = "; ".join(
        v.message + (f" (and {v.count - 1:,} more like it)" if v.count > 1 else "")
        for v in violations[:3]
    )
    rest = len(violations) - 3
    more = f"; and {rest} other {'kind' if rest == 1 else 'kinds'} of problem" if rest > 0 else ""
    raise GraphError(
        f"the graph is not valid: {described}{more}",
        remedy="fix the program that built it; docs/graph.md lists the rules",
    )


# -- durations -----------------------------------------------------------------------------


def _durations(graph: Graph) -> Iterator[Violation]:
    ops = graph.ops
    yield from found(
        "negative-time",
        ops.work_ns < 0,
        lambda i: f"operation {i} takes {ops.work_ns[i]} ns",
    )
    yield from found(
        "excessive-time",
        ops.work_ns > MAX_WORK_NS,
        lambda i: f"operation {i} takes {ops.work_ns[i]} ns, more than {format_ns(MAX_WORK_NS)}",
    )
    if float(ops.work_ns.astype(np.float64).sum()) > MAX_TOTAL_WORK_NS:
        yield Violation("excessive-time", "all operations together take more than 52 days")


# -- consistency -------------------------------------------------------------------------------


def _own_resources(graph: Graph) -> Iterator[Violation]:
    ops = graph.ops
    # The appended NONE is the owner of "no resource", selected by index -1.
    owner = np.append(graph.resources.rank, NONE)[ops.resource]
    yield from found(
        "foreign-resource",
        (owner != NONE) & (owner != ops.rank),
        lambda i: (
            f"{graph.op_label(i)} runs on"
            f" {graph.resource_name(int(ops.resource[i]))!r} of rank {owner[i]}"
        ),
    )
    buffers = graph.buffers
    of_op = np.append(ops.rank, NONE)
    for column in (buffers.taken_by, buffers.given_by):
        yield from found(
            "foreign-buffer",
            (column != NONE) & (of_op[column] != buffers.rank),
            lambda i, c=column: (
                f"buffer {i} of rank {buffers.rank[i]} is handled by"  # type: ignore[misc]
                f" {graph.op_label(int(c[i]))}"
            ),
        )


def _memory(graph: Graph) -> Iterator[Violation]:
    held = np.bincount(graph.buffers.rank, weights=graph.buffers.size_bytes)
    yield from found(
        "excessive-size",
        held > MAX_RANK_BYTES,
        lambda i: f"the buffers of rank {i} add up to more than 2^62 bytes",
    )


def _gang_agreement(graph: Graph) -> Iterator[Violation]:
    ops = graph.ops
    members = np.flatnonzero(ops.gang >= 0)
    if not len(members):
        return
    gang = ops.gang[members]
    leader = np.full(graph.num_gangs, NONE, dtype=np.int64)
    leader[gang[::-1]] = members[::-1]
    lead = leader[gang]
    point_to_point = np.isin(ops.kind, [int(k) for k in POINT_TO_POINT])
    checks: tuple[tuple[NDArray[np.bool_], Callable[[int], str]], ...] = (
        (
            (ops.kind[members] != ops.kind[lead])
            & ~(point_to_point[members] & point_to_point[lead]),
            lambda op: f"calls {OpKind(int(ops.kind[op])).label}",
        ),
        (
            ops.size_bytes[members] != ops.size_bytes[lead],
            lambda op: f"brings {format_bytes(float(ops.size_bytes[op]))}",
        ),
        (
            ops.work_ns[members] != ops.work_ns[lead],
            lambda op: f"needs {format_ns(float(ops.work_ns[op]))}",
        ),
    )
    for bad, describe in checks:
        where = np.flatnonzero(bad)
        if len(where):
            op, other = int(members[where[0]]), int(lead[where[0]])
            yield Violation(
                "gang-disagrees",
                f"ranks disagree about gang {ops.gang[op]}: {graph.op_label(other)}"
                f" {describe(other)}, {graph.op_label(op)} {describe(op)}",
                len(where),
            )


def _gang_ranks(graph: Graph) -> Iterator[Violation]:
    ops = graph.ops
    members = np.flatnonzero(ops.gang >= 0)
    pairs = ops.gang[members].astype(np.int64) * len(graph.ranks) + ops.rank[members]
    _, index, counts = np.unique(pairs, return_index=True, return_counts=True)
    yield from found(
        "gang-disagrees",
        counts > 1,
        lambda i: (
            f"gang {ops.gang[members[index[i]]]} has rank {ops.rank[members[index[i]]]} twice"
        ),
    )


def _slowest(graph: Graph) -> Iterator[Violation]:
    if graph.is_exclusive:
        return
    ops, resources, rules = graph.ops, graph.resources, graph.interference
    rate = np.ones(len(resources) + 1)
    shared = np.flatnonzero(resources.capacity)
    rate[shared] = np.minimum(resources.capacity[shared] / RATE_ONE, 1)
    np.multiply.at(rate, rules.victim, rules.rate / RATE_ONE)
    total_ns = float(ops.work_ns.sum())
    if 2 * total_ns / max(rate.min(), 1 / RATE_ONE) <= MAX_SLOWED_NS:
        return  # the exact sum is smaller
    # Engines keep rates at 1 or more. The last entry, selected by index -1, means no resource.
    op_rate = np.maximum(rate, 1 / RATE_ONE)[ops.resource]
    gang_rate = np.ones(graph.num_gangs + 1)
    np.minimum.at(gang_rate, ops.gang, op_rate)
    gang_rate[NONE] = 1
    slowed = ops.work_ns / np.minimum(op_rate, gang_rate[ops.gang])
    if slowed.sum() > MAX_SLOWED_NS:
        worst = int(slowed.argmax())
        yield Violation(
            "excessive-time",
            f"slowed as far as capacities and interference allow, all operations together take"
            f" more than 36 years, {graph.op_label(worst)} most of all",
        )


def _steps(graph: Graph) -> Iterator[Violation]:
    has_step = np.zeros(len(graph.ranks), dtype=bool)
    has_step[graph.ops.rank[graph.ops.step >= 0]] = True
    yield from found(
        "no-steps",
        ~has_step & (graph.ranks.role == Role.WORKER),
        lambda i: f"rank {i} has no operation that belongs to a step",
    )


def _acyclic(graph: Graph) -> Iterator[Violation]:
    cycle = find_cycle(graph.edges)
    if cycle:
        shown = [graph.op_label(op) for op in cycle[:6]]
        if len(cycle) > len(shown):
            shown.append(f"... {len(cycle) - len(shown)} more ...")
        yield Violation("cycle", " -> ".join([*shown, f"op {cycle[0]}"]) + " is a cycle")


_STAGES: tuple[tuple[Rule, ...], ...] = (
    SHAPE_RULES,
    (*REFERENCE_RULES, _durations),
    (_own_resources, _memory, _gang_agreement, _gang_ranks, _slowest, _steps, _acyclic),
)
