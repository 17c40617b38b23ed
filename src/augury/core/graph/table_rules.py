"""Rules about the tables of a Graph: equal lengths, references in range, known values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from augury.core.enums import Discipline, MemoryKind, OpKind, ResourceKind, Role
from augury.core.graph.graph import NONE, RATE_ONE, Graph

MIN_RATE = RATE_ONE >> 10
MAX_SHARED_WIDTH = 1 << 16


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken rule: its stable slug, a message about the first case, and the number of cases."""

    rule: str
    message: str
    count: int = 1


def found(rule: str, bad: NDArray[np.bool_], describe: Callable[[int], str]) -> Iterator[Violation]:
    """Yields at most one violation, which counts the bad rows and describes the first."""
    where = np.flatnonzero(bad)
    if len(where):
        yield Violation(rule, describe(int(where[0])), len(where))


def outside(values: NDArray[Any], low: int, high: int) -> NDArray[np.bool_]:
    """Marks values outside of ``low <= value < high``."""
    return np.asarray((values < low) | (values >= high))


def unknown(values: NDArray[np.uint8], kinds: type[IntEnum]) -> NDArray[np.bool_]:
    known = np.zeros(256, dtype=bool)
    known[[int(k) for k in kinds]] = True
    return np.asarray(~known[values])


# -- shape ---------------------------------------------------------------------------------


def check_shape(graph: Graph) -> Iterator[Violation]:
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


def check_not_empty(graph: Graph) -> Iterator[Violation]:
    if graph.num_ops == 0:
        yield Violation("empty", "it has no operations")


# -- references ----------------------------------------------------------------------------


def check_ranks(graph: Graph) -> Iterator[Violation]:
    yield from found(
        "unknown-role",
        unknown(graph.ranks.role, Role),
        lambda i: f"rank {i} has the unknown role {graph.ranks.role[i]}",
    )
    num_ranks = len(graph.ranks)
    yield from found(
        "unknown-rank",
        outside(graph.ops.rank, 0, num_ranks),
        lambda i: f"operation {i} belongs to rank {graph.ops.rank[i]} of {num_ranks}",
    )
    yield from found(
        "unknown-rank",
        outside(graph.resources.rank, NONE, num_ranks),
        lambda i: f"resource {i} belongs to rank {graph.resources.rank[i]} of {num_ranks}",
    )
    yield from found(
        "unknown-rank",
        outside(graph.buffers.rank, 0, num_ranks),
        lambda i: f"buffer {i} belongs to rank {graph.buffers.rank[i]} of {num_ranks}",
    )
    yield from found(
        "unknown-rank",
        outside(graph.gradients.rank, 0, num_ranks),
        lambda i: f"gradient {i} belongs to rank {graph.gradients.rank[i]} of {num_ranks}",
    )
    yield from found(
        "unknown-rank",
        outside(graph.measured.rank, 0, num_ranks),
        lambda i: f"a measured step belongs to rank {graph.measured.rank[i]} of {num_ranks}",
    )


def check_strings(graph: Graph) -> Iterator[Violation]:
    size = len(graph.strings)
    for what, values, low in (
        ("operation", graph.ops.name, 0),
        ("operation", graph.ops.layer, NONE),
        ("resource", graph.resources.name, 0),
        ("buffer", graph.buffers.layer, NONE),
        ("gradient", graph.gradients.name, 0),
        ("rank", graph.ranks.host, 0),
    ):
        yield from found(
            "unknown-string",
            outside(values, low, size),
            lambda i, w=what, v=values: f"{w} {i} names string {v[i]} of {size}",  # type: ignore[misc]
        )


def check_edges(graph: Graph) -> Iterator[Violation]:
    num_ops, src, dst = graph.num_ops, graph.edges.sources(), graph.edges.dst
    yield from found(
        "dangling-edge",
        outside(dst, 0, num_ops),
        lambda i: f"an edge leads from operation {src[i]} to {dst[i]}, which does not exist",
    )
    yield from found(
        "cycle",
        src == dst,
        lambda i: f"operation {src[i]} waits for itself",
    )
    # Equal graphs have equal files, and the kernel serves successors in stored order.
    begins = np.zeros(len(dst) + 1, dtype=bool)
    begins[graph.edges.first] = True
    yield from found(
        "edge-order",
        (dst[1:] < dst[:-1]) & ~begins[1:-1],
        lambda i: f"the edges of operation {src[i]} do not lead to rising numbers",
    )
    carries = graph.carries
    yield from found(
        "dangling-edge",
        outside(carries.src, 0, num_ops) | outside(carries.dst, 0, num_ops),
        lambda i: (
            f"a carried edge leads from operation {carries.src[i]} to {carries.dst[i]},"
            f" but there are {num_ops}"
        ),
    )


def check_resources(graph: Graph) -> Iterator[Violation]:
    ops, resources = graph.ops, graph.resources
    count = len(resources)
    yield from found(
        "unknown-resource",
        outside(ops.resource, NONE, count),
        lambda i: f"operation {i} runs on resource {ops.resource[i]} of {count}",
    )
    yield from found(
        "unknown-kind",
        unknown(resources.kind, ResourceKind) | unknown(resources.discipline, Discipline),
        lambda i: f"resource {i} has an unknown kind or discipline",
    )
    yield from found(
        "bad-resource",
        (resources.width < 1)
        | (resources.capacity < 0)
        | ((resources.capacity > 0) & (resources.width > MAX_SHARED_WIDTH)),
        lambda i: (
            f"resource {i} has width {resources.width[i]} and capacity {resources.capacity[i]}"
        ),
    )
    rules = graph.interference
    yield from found(
        "unknown-resource",
        outside(rules.victim, 0, count) | outside(rules.aggressor, 0, count),
        lambda i: (
            f"interference {i} is between resources {rules.victim[i]}"
            f" and {rules.aggressor[i]} of {count}"
        ),
    )
    yield from found(
        "bad-interference",
        (rules.rate < MIN_RATE) | (rules.rate > RATE_ONE) | (rules.victim == rules.aggressor),
        lambda i: (
            f"interference {i} slows resource {rules.victim[i]} to"
            f" {rules.rate[i] / RATE_ONE:.4f} of its speed (0.001 to 1, by another resource)"
        ),
    )


def check_buffers(graph: Graph) -> Iterator[Violation]:
    buffers, num_ops = graph.buffers, graph.num_ops
    yield from found(
        "unknown-kind",
        unknown(buffers.kind, MemoryKind),
        lambda i: f"buffer {i} has the unknown kind {buffers.kind[i]}",
    )
    yield from found(
        "dangling-buffer",
        outside(buffers.taken_by, NONE, num_ops) | outside(buffers.given_by, NONE, num_ops),
        lambda i: (
            f"buffer {i} is taken by operation {buffers.taken_by[i]} and given back by"
            f" {buffers.given_by[i]}, but there are {num_ops}"
        ),
    )
    yield from found(
        "negative-size",
        buffers.size_bytes < 0,
        lambda i: f"buffer {i} has {buffers.size_bytes[i]} bytes",
    )
    yield from found(
        "bad-buffer",
        buffers.later > 1,
        lambda i: f"buffer {i} is given back {buffers.later[i]} windows later; 0 or 1 is known",
    )


def check_gradients(graph: Graph) -> Iterator[Violation]:
    gradients, num_ops = graph.gradients, graph.num_ops
    yield from found(
        "dangling-gradient",
        outside(gradients.made_by, 0, num_ops)
        | outside(gradients.carried_by, 0, num_ops)
        | outside(gradients.used_by, 0, num_ops),
        lambda i: (
            f"gradient {i} is made by operation {gradients.made_by[i]}, carried by"
            f" {gradients.carried_by[i]} and used by {gradients.used_by[i]},"
            f" but there are {num_ops}"
        ),
    )
    yield from found(
        "negative-size",
        gradients.size_bytes < 0,
        lambda i: f"gradient {i} has {gradients.size_bytes[i]} bytes",
    )


def check_values(graph: Graph) -> Iterator[Violation]:
    ops, measured = graph.ops, graph.measured
    yield from found(
        "unknown-kind",
        unknown(ops.kind, OpKind),
        lambda i: f"operation {i} has the unknown kind {ops.kind[i]}",
    )
    yield from found(
        "negative-size",
        ops.size_bytes < 0,
        lambda i: f"operation {i} moves {ops.size_bytes[i]} bytes",
    )
    yield from found(
        "bad-step", ops.step < NONE, lambda i: f"operation {i} is in step {ops.step[i]}"
    )
    yield from found(
        "bad-measurement",
        (measured.dur_ns <= 0) | (measured.explained_ns < 0) | (measured.step < 0),
        lambda i: (
            f"step {measured.step[i]} of rank {measured.rank[i]} was measured as"
            f" {measured.dur_ns[i]} ns, {measured.explained_ns[i]} ns of it explained"
        ),
    )
    # Ids are array indices: sparse numbers would let a tiny file request all memory.
    yield from found(
        "bad-gang",
        outside(ops.gang, NONE, graph.num_ops),
        lambda i: (
            f"operation {i} is in gang {ops.gang[i]}, but there are only {graph.num_ops} operations"
        ),
    )


Rule = Callable[[Graph], Iterator[Violation]]
SHAPE_RULES: tuple[Rule, ...] = (check_shape,)
REFERENCE_RULES: tuple[Rule, ...] = (
    check_not_empty,
    check_ranks,
    check_strings,
    check_edges,
    check_resources,
    check_buffers,
    check_gradients,
    check_values,
)
