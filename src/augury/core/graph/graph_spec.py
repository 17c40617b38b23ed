"""The executable specification of a Graph: says in words what is wrong with one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from augury.core.enums import Discipline, MemoryKind, OpKind, ResourceKind, Role
from augury.core.errors import GraphError
from augury.core.graph.cycles import find_cycle
from augury.core.graph.graph import NONE, RATE_ONE, Graph
from augury.core.units import format_bytes, format_ns

MAX_WORK_NS = 1 << 42
"""73 minutes for one operation: beyond that a unit was mistaken, and remaining work in fixed
point would no longer fit 64 bits."""

MAX_TOTAL_WORK_NS = 1 << 52
"""52 days for all together."""

MAX_SLOWED_NS = 1 << 60
"""All together at their slowest: the clock has 64 bits, and rounding rates needs some room."""

MAX_RANK_BYTES = 1 << 62
"""Of buffers on one rank: their sum must not overflow either."""

MIN_RATE = RATE_ONE >> 10
MAX_SHARED_WIDTH = 1 << 16
POINT_TO_POINT = {OpKind.SEND, OpKind.RECV, OpKind.PUSH, OpKind.PULL}


@dataclass(frozen=True, slots=True)
class Violation:
    """``rule`` is a stable slug; ``count`` says how often, ``message`` shows the first."""

    rule: str
    message: str
    count: int = 1


def check(graph: Graph) -> list[Violation]:
    """Everything that is wrong; later rules run only where earlier ones make sense of the data."""
    problems: list[Violation] = []
    for stage in _STAGES:
        for rule in stage:
            problems.extend(rule(graph))
        if problems:
            break
    return problems


def verify(graph: Graph) -> None:
    problems = check(graph)
    if not problems:
        return
    told = "; ".join(
        p.message + (f" (and {p.count - 1:,} more like it)" if p.count > 1 else "")
        for p in problems[:3]
    )
    more = f"; and {len(problems) - 3} other kinds of problem" if len(problems) > 3 else ""
    raise GraphError(
        f"the graph is not valid: {told}{more}",
        remedy="mend what built it: the graph's rules are in docs/graph.md",
    )


def _found(rule: str, bad: NDArray[np.bool_], tell: Callable[[int], str]) -> Iterator[Violation]:
    """At most one problem: how many rows are bad, in words for the first of them."""
    where = np.flatnonzero(bad)
    if len(where):
        yield Violation(rule, tell(int(where[0])), len(where))


def _outside(values: NDArray[Any], low: int, high: int) -> NDArray[np.bool_]:
    """Not in ``low <= value < high``."""
    return np.asarray((values < low) | (values >= high))


def _unknown(values: NDArray[np.uint8], kinds: type[IntEnum]) -> NDArray[np.bool_]:
    known = np.zeros(256, dtype=bool)
    known[[int(k) for k in kinds]] = True
    return np.asarray(~known[values])


# -- shape ---------------------------------------------------------------------------------


def _shape(graph: Graph) -> Iterator[Violation]:
    tables = (
        ("ops", graph.ops),
        ("carries", graph.carries),
        ("resources", graph.resources),
        ("interference", graph.interference),
        ("buffers", graph.buffers),
        ("gradients", graph.gradients),
        ("ranks", graph.ranks),
        ("measured", graph.measured),
    )
    for name, table in tables:
        lengths = {column: len(values) for column, values in table.columns()}
        if len(set(lengths.values())) > 1:
            yield Violation("shape", f"columns of table {name!r} differ in length: {lengths}")
    first, dst = graph.edges.first, graph.edges.dst
    if (
        len(first) != graph.num_ops + 1
        or first[0] != 0
        or first[-1] != len(dst)
        or (np.diff(first) < 0).any()
    ):
        yield Violation("shape", "the edge index does not rise from 0 to the number of edges")
    ends = graph.strings.ends
    if len(ends) and (
        ends[0] < 0 or (np.diff(ends) < 0).any() or ends[-1] != len(graph.strings.blob)
    ):
        yield Violation("shape", "the string index does not rise to the size of its text")


def _not_empty(graph: Graph) -> Iterator[Violation]:
    if graph.num_ops == 0:
        yield Violation("empty", "it has no operations")


# -- references ----------------------------------------------------------------------------


def _ranks(graph: Graph) -> Iterator[Violation]:
    yield from _found(
        "unknown-role",
        _unknown(graph.ranks.role, Role),
        lambda i: f"rank {i} has the unknown role {graph.ranks.role[i]}",
    )
    num_ranks = len(graph.ranks)
    yield from _found(
        "unknown-rank",
        _outside(graph.ops.rank, 0, num_ranks),
        lambda i: f"operation {i} belongs to rank {graph.ops.rank[i]} of {num_ranks}",
    )
    yield from _found(
        "unknown-rank",
        _outside(graph.resources.rank, NONE, num_ranks),
        lambda i: f"resource {i} belongs to rank {graph.resources.rank[i]} of {num_ranks}",
    )
    yield from _found(
        "unknown-rank",
        _outside(graph.buffers.rank, 0, num_ranks),
        lambda i: f"buffer {i} belongs to rank {graph.buffers.rank[i]} of {num_ranks}",
    )
    yield from _found(
        "unknown-rank",
        _outside(graph.gradients.rank, 0, num_ranks),
        lambda i: f"gradient {i} belongs to rank {graph.gradients.rank[i]} of {num_ranks}",
    )
    yield from _found(
        "unknown-rank",
        _outside(graph.measured.rank, 0, num_ranks),
        lambda i: f"a measured step belongs to rank {graph.measured.rank[i]} of {num_ranks}",
    )


def _strings(graph: Graph) -> Iterator[Violation]:
    size = len(graph.strings)
    for what, values, low in (
        ("operation", graph.ops.name, 0),
        ("operation", graph.ops.layer, NONE),
        ("resource", graph.resources.name, 0),
        ("buffer", graph.buffers.layer, NONE),
        ("gradient", graph.gradients.name, 0),
        ("rank", graph.ranks.host, 0),
    ):
        yield from _found(
            "unknown-string",
            _outside(values, low, size),
            lambda i, w=what, v=values: f"{w} {i} names string {v[i]} of {size}",  # type: ignore[misc]
        )


def _edges(graph: Graph) -> Iterator[Violation]:
    num_ops, src, dst = graph.num_ops, graph.edges.sources(), graph.edges.dst
    yield from _found(
        "dangling-edge",
        _outside(dst, 0, num_ops),
        lambda i: f"an edge leads from operation {src[i]} to {dst[i]}, which does not exist",
    )
    yield from _found(
        "cycle",
        src == dst,
        lambda i: f"operation {src[i]} waits for itself",
    )
    # One form for one graph; the kernel also serves successors in the order it finds them.
    begins = np.zeros(len(dst) + 1, dtype=bool)
    begins[graph.edges.first] = True
    yield from _found(
        "edge-order",
        (dst[1:] < dst[:-1]) & ~begins[1:-1],
        lambda i: f"the edges of operation {src[i]} do not lead to rising numbers",
    )
    carries = graph.carries
    yield from _found(
        "dangling-edge",
        _outside(carries.src, 0, num_ops) | _outside(carries.dst, 0, num_ops),
        lambda i: (
            f"a carried edge leads from operation {carries.src[i]} to {carries.dst[i]},"
            f" but there are {num_ops}"
        ),
    )


def _resources(graph: Graph) -> Iterator[Violation]:
    ops, resources = graph.ops, graph.resources
    count = len(resources)
    yield from _found(
        "unknown-resource",
        _outside(ops.resource, NONE, count),
        lambda i: f"operation {i} runs on resource {ops.resource[i]} of {count}",
    )
    yield from _found(
        "unknown-kind",
        _unknown(resources.kind, ResourceKind) | _unknown(resources.discipline, Discipline),
        lambda i: f"resource {i} has an unknown kind or discipline",
    )
    yield from _found(
        "bad-resource",
        (resources.width < 1)
        | (resources.capacity < 0)
        | ((resources.capacity > 0) & (resources.width > MAX_SHARED_WIDTH)),
        lambda i: (
            f"resource {i} has width {resources.width[i]} and capacity {resources.capacity[i]}"
        ),
    )
    rules = graph.interference
    yield from _found(
        "unknown-resource",
        _outside(rules.victim, 0, count) | _outside(rules.aggressor, 0, count),
        lambda i: (
            f"interference {i} is between resources {rules.victim[i]}"
            f" and {rules.aggressor[i]} of {count}"
        ),
    )
    yield from _found(
        "bad-interference",
        (rules.rate < MIN_RATE) | (rules.rate > RATE_ONE) | (rules.victim == rules.aggressor),
        lambda i: (
            f"interference {i} slows resource {rules.victim[i]} to"
            f" {rules.rate[i] / RATE_ONE:.4f} of its speed (0.001 to 1, by another resource)"
        ),
    )


def _buffers(graph: Graph) -> Iterator[Violation]:
    buffers, num_ops = graph.buffers, graph.num_ops
    yield from _found(
        "unknown-kind",
        _unknown(buffers.kind, MemoryKind),
        lambda i: f"buffer {i} has the unknown kind {buffers.kind[i]}",
    )
    yield from _found(
        "dangling-buffer",
        _outside(buffers.taken_by, NONE, num_ops) | _outside(buffers.given_by, NONE, num_ops),
        lambda i: (
            f"buffer {i} is taken by operation {buffers.taken_by[i]} and given back by"
            f" {buffers.given_by[i]}, but there are {num_ops}"
        ),
    )
    yield from _found(
        "negative-size",
        buffers.size_bytes < 0,
        lambda i: f"buffer {i} has {buffers.size_bytes[i]} bytes",
    )
    yield from _found(
        "bad-buffer",
        buffers.later > 1,
        lambda i: f"buffer {i} is given back {buffers.later[i]} windows later; 0 or 1 is known",
    )


def _gradients(graph: Graph) -> Iterator[Violation]:
    gradients, num_ops = graph.gradients, graph.num_ops
    yield from _found(
        "dangling-gradient",
        _outside(gradients.made_by, 0, num_ops)
        | _outside(gradients.carried_by, 0, num_ops)
        | _outside(gradients.used_by, 0, num_ops),
        lambda i: (
            f"gradient {i} is made by operation {gradients.made_by[i]}, carried by"
            f" {gradients.carried_by[i]} and used by {gradients.used_by[i]},"
            f" but there are {num_ops}"
        ),
    )
    yield from _found(
        "negative-size",
        gradients.size_bytes < 0,
        lambda i: f"gradient {i} has {gradients.size_bytes[i]} bytes",
    )


def _values(graph: Graph) -> Iterator[Violation]:
    ops, measured = graph.ops, graph.measured
    yield from _found(
        "unknown-kind",
        _unknown(ops.kind, OpKind),
        lambda i: f"operation {i} has the unknown kind {ops.kind[i]}",
    )
    yield from _found(
        "negative-time",
        ops.work_ns < 0,
        lambda i: f"operation {i} takes {ops.work_ns[i]} ns",
    )
    yield from _found(
        "excessive-time",
        ops.work_ns > MAX_WORK_NS,
        lambda i: f"operation {i} takes {ops.work_ns[i]} ns, more than {format_ns(MAX_WORK_NS)}",
    )
    if float(ops.work_ns.astype(np.float64).sum()) > MAX_TOTAL_WORK_NS:
        yield Violation("excessive-time", "all operations together take more than 52 days")
    yield from _found(
        "negative-size",
        ops.size_bytes < 0,
        lambda i: f"operation {i} moves {ops.size_bytes[i]} bytes",
    )
    yield from _found(
        "bad-step", ops.step < NONE, lambda i: f"operation {i} is in step {ops.step[i]}"
    )
    yield from _found(
        "bad-measurement",
        (measured.dur_ns <= 0) | (measured.explained_ns < 0) | (measured.step < 0),
        lambda i: (
            f"step {measured.step[i]} of rank {measured.rank[i]} was measured as"
            f" {measured.dur_ns[i]} ns, {measured.explained_ns[i]} ns of it explained"
        ),
    )
    # Ids index arrays: a sparse numbering would let a tiny file ask for all memory.
    yield from _found(
        "bad-gang",
        _outside(ops.gang, NONE, graph.num_ops),
        lambda i: (
            f"operation {i} is in gang {ops.gang[i]}, but there are only {graph.num_ops} operations"
        ),
    )


# -- meaning -------------------------------------------------------------------------------


def _own_resources(graph: Graph) -> Iterator[Violation]:
    ops = graph.ops
    # The appended NONE is the owner of "no resource", which index -1 picks.
    owner = np.append(graph.resources.rank, NONE)[ops.resource]
    yield from _found(
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
        yield from _found(
            "foreign-buffer",
            (column != NONE) & (of_op[column] != buffers.rank),
            lambda i, c=column: (
                f"buffer {i} of rank {buffers.rank[i]} is handled by"  # type: ignore[misc]
                f" {graph.op_label(int(c[i]))}"
            ),
        )


def _memory(graph: Graph) -> Iterator[Violation]:
    held = np.bincount(graph.buffers.rank, weights=graph.buffers.size_bytes)
    yield from _found(
        "excessive-size",
        held > MAX_RANK_BYTES,
        lambda i: f"the buffers of rank {i} add up to more than 2^62 bytes",
    )


def _gangs(graph: Graph) -> Iterator[Violation]:
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
    for bad, tell in checks:
        where = np.flatnonzero(bad)
        if len(where):
            op, other = int(members[where[0]]), int(lead[where[0]])
            yield Violation(
                "gang-disagrees",
                f"ranks disagree about gang {ops.gang[op]}: {graph.op_label(other)}"
                f" {tell(other)}, {graph.op_label(op)} {tell(op)}",
                len(where),
            )
    pairs = gang.astype(np.int64) * len(graph.ranks) + ops.rank[members]
    _, index, counts = np.unique(pairs, return_index=True, return_counts=True)
    yield from _found(
        "gang-disagrees",
        counts > 1,
        lambda i: f"gang {gang[index[i]]} has rank {ops.rank[members[index[i]]]} twice",
    )


def _slowest(graph: Graph) -> Iterator[Violation]:
    if graph.is_exclusive:
        return
    ops, resources, rules = graph.ops, graph.resources, graph.interference
    rate = np.ones(len(resources) + 1)
    shared = np.flatnonzero(resources.capacity)
    rate[shared] = np.minimum(resources.capacity[shared] / RATE_ONE, 1)
    np.multiply.at(rate, rules.victim, rules.rate / RATE_ONE)
    # No engine goes slower than one unit; the last entry, which index -1 picks, is no resource.
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
    yield from _found(
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


_STAGES: tuple[tuple[Callable[[Graph], Iterator[Violation]], ...], ...] = (
    (_shape,),
    (_not_empty, _ranks, _strings, _edges, _resources, _buffers, _gradients, _values),
    (_own_resources, _memory, _gangs, _slowest, _steps, _acyclic),
)
