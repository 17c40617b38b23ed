"""Edits of a graph: operations removed, added and rewired."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from augury.core.columns import I4, Table
from augury.core.enums import Discipline, OpKind, ResourceKind
from augury.core.graph.graph import (
    NONE,
    Buffers,
    Carries,
    Edges,
    Gradients,
    Graph,
    Interference,
    Ops,
    Ranks,
    Resources,
)
from augury.core.graph.graph_spec import verify
from augury.core.string_table import StringTable


class GraphEdit:
    """Collects edits. New operations are numbered after the graph's; ``graph`` renumbers all."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._names: list[str] = []
        self._new: dict[type[Table], list[tuple[int, ...]]] = {}
        self._removed: set[int] = set()
        self._edges: list[tuple[int, int]] = []
        self._num_ops = graph.num_ops
        self._num_gangs = graph.num_gangs
        self._num_resources = len(graph.resources)

    def remove(self, op: int) -> None:
        """Removes an operation with all its edges."""
        self._removed.add(op)

    def edge(self, src: int, dst: int) -> None:
        self._edges.append((src, dst))

    def carry(self, src: int, dst: int) -> None:
        self._add(Carries, (src, dst))

    def gang(self) -> int:
        self._num_gangs += 1
        return self._num_gangs - 1

    def op(
        self,
        name: str,
        *,
        kind: OpKind,
        rank: int,
        resource: int,
        work_ns: int,
        step: int,
        size_bytes: int = 0,
        priority: int = 0,
        gang: int = NONE,
        after: Iterable[int] = (),
    ) -> int:
        return self.copy_op(
            (kind, rank, resource, work_ns, size_bytes, priority, gang, NONE, step),
            self._number_of(name),
            after=after,
        )

    def _number_of(self, name: str) -> int:
        """Returns the index of a new string, after the graph's own."""
        if name not in self._names:
            self._names.append(name)
        return len(self._graph.strings) + self._names.index(name)

    def copy_op(self, row: tuple[int, ...], name: int, *, after: Iterable[int] = ()) -> int:
        """Adds an operation by its columns. ``row`` has all columns of Ops but the name."""
        self._add(Ops, (*row, name))
        self._num_ops += 1
        self._edges += [(before, self._num_ops - 1) for before in after]
        return self._num_ops - 1

    def resource(self, row: tuple[int, ...]) -> int:
        self._add(Resources, row)
        self._num_resources += 1
        return self._num_resources - 1

    def named_resource(
        self, name: str, *, kind: ResourceKind, rank: int, width: int, discipline: Discipline
    ) -> int:
        """Adds an exclusive resource."""
        return self.resource((kind, rank, width, 0, discipline, self._number_of(name)))

    def interfere(self, row: tuple[int, ...]) -> None:
        self._add(Interference, row)

    def buffer(self, row: tuple[int, ...]) -> None:
        self._add(Buffers, row)

    def rank(self, row: tuple[int, ...]) -> int:
        self._add(Ranks, row)
        return len(self._graph.ranks) + len(self._new[Ranks]) - 1

    def gradient(self, row: tuple[int, ...]) -> None:
        self._add(Gradients, row)

    def _add(self, table: type[Table], row: tuple[int, ...]) -> None:
        self._new.setdefault(table, []).append(row)

    def graph(self, *, num_ranks: int | None = None) -> Graph:
        """Returns the edited graph, verified. Ranks from ``num_ranks`` on, whose operations must
        have been removed, are removed as well."""
        old = self._graph if num_ranks is None else first_ranks(self._graph, num_ranks)
        keep = self._kept()
        number = _numbers(keep)
        ops = self._grown(Ops, old.ops)
        columns = {name: values[keep] for name, values in ops.columns()}
        columns["gang"] = _renumbered(columns["gang"])
        changed = old.evolve(
            ops=Ops(**columns),
            edges=self._all_edges(number, keep),
            carries=_mapped(self._grown(Carries, old.carries), number, ("src", "dst")),
            resources=self._grown(Resources, old.resources),
            interference=self._grown(Interference, old.interference),
            buffers=_mapped(self._grown(Buffers, old.buffers), number, ("taken_by", "given_by")),
            gradients=_mapped(
                self._grown(Gradients, old.gradients),
                number,
                ("made_by", "carried_by", "used_by"),
            ),
            ranks=self._grown(Ranks, old.ranks),
            strings=StringTable.of([*old.strings, *self._names]) if self._names else old.strings,
        )
        verify(changed)
        return changed

    def new_op_of(self) -> I4:
        """Returns the index in the edited graph of each operation of the old one; NONE if it was
        removed."""
        return _numbers(self._kept())[: self._graph.num_ops]

    def _kept(self) -> NDArray[np.bool_]:
        keep = np.ones(self._num_ops, dtype=bool)
        keep[list(self._removed)] = False
        return keep

    def _grown(self, kind: type[Any], table: Any) -> Any:
        rows = np.array(self._new.get(kind, []), dtype=np.int64)
        if not len(rows):
            return table
        return kind(
            **{
                name: np.concatenate([values, rows[:, i].astype(values.dtype)])
                for i, (name, values) in enumerate(table.columns())
            }
        )

    def _all_edges(self, number: NDArray[np.int32], keep: NDArray[np.bool_]) -> Edges:
        added = np.array(self._edges, dtype=np.int32).reshape(-1, 2)
        src = np.concatenate([self._graph.edges.sources(), added[:, 0]])
        dst = np.concatenate([self._graph.edges.dst, added[:, 1]])
        stays = keep[src] & keep[dst]
        pairs = np.unique((number[src[stays]].astype(np.int64) << 32) | number[dst[stays]])
        return Edges.from_pairs(
            (pairs >> 32).astype(np.int32),
            (pairs & 0xFFFF_FFFF).astype(np.int32),
            num_ops=int(keep.sum()),
        )


def _numbers(keep: NDArray[np.bool_]) -> I4:
    return np.where(keep, np.cumsum(keep) - 1, NONE).astype(np.int32)


def first_ranks(graph: Graph, num_ranks: int) -> Graph:
    """Removes the rows of later ranks from all tables but that of operations."""
    resources = np.where(graph.resources.rank < num_ranks, graph.resources.rank, NONE)
    rules, own = graph.interference, graph.resources.rank < num_ranks
    together = own[rules.victim] & own[rules.aggressor]
    return graph.evolve(
        ranks=_rows(graph.ranks, np.arange(len(graph.ranks)) < num_ranks),
        resources=Resources(**(dict(graph.resources.columns()) | {"rank": resources})),
        interference=_rows(rules, together),
        buffers=_rows(graph.buffers, graph.buffers.rank < num_ranks),
        measured=_rows(graph.measured, graph.measured.rank < num_ranks),
    )


def _rows(table: Any, keep: NDArray[np.bool_]) -> Any:
    return type(table)(**{name: values[keep] for name, values in table.columns()})


def _renumbered(gang: NDArray[np.int32]) -> NDArray[np.int32]:
    """Renumbers gangs without gaps: a gang's index must be below the number of operations."""
    values, number = np.unique(gang, return_inverse=True)
    has_none = bool(len(values)) and values[0] == NONE
    return np.asarray(number - 1 if has_none else number, dtype=np.int32)


def _mapped(table: Any, number: NDArray[np.int32], columns: tuple[str, ...]) -> Any:
    """Renumbers operations in a table. Rows of removed operations are removed."""
    values = dict(table.columns())
    stays = np.ones(len(table), dtype=bool)
    for name in columns:
        old = values[name]
        values[name] = np.where(old == NONE, NONE, number[old])
        stays &= (old == NONE) | (values[name] != NONE)
    return type(table)(**{name: column[stays] for name, column in values.items()})
