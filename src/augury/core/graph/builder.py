"""GraphBuilder: builds a Graph one operation at a time, or from columns of operations."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from augury.core.columns import Table
from augury.core.enums import Discipline, MemoryKind, OpKind, ResourceKind, Role
from augury.core.errors import UsageError
from augury.core.graph.graph import (
    NONE,
    RATE_ONE,
    Buffers,
    Carries,
    Edges,
    Gradients,
    Graph,
    Interference,
    MeasuredSteps,
    Ops,
    Ranks,
    Resources,
)
from augury.core.graph.graph_spec import verify
from augury.core.ledger import Ledger
from augury.core.string_table import StringPool

UNLIMITED_WIDTH = 1 << 16
"""Width of a shared link that accepts all operations at once."""

_MAX_CAPACITY = 1 << 40
_T = TypeVar("_T", bound=Table)
_TYPECODES = {1: "B", 4: "i", 8: "q"}


class _Columns(Generic[_T]):
    """Growing columns of one table."""

    def __init__(self, table: type[_T]) -> None:
        self._table = table
        self._names = [name for name, _ in table.schema()]
        self._arrays = [array(_TYPECODES[dtype.itemsize]) for _, dtype in table.schema()]

    def append(self, *row: int) -> int:
        try:
            for values, value in zip(self._arrays, row, strict=True):
                values.append(value)
        except (OverflowError, TypeError) as error:
            raise self._misfit(row) from error
        return len(self._arrays[0]) - 1

    def extend(self, num_rows: int, *columns: ArrayLike) -> int:
        """Appends rows given as columns; a single value stands for all rows. Returns the number of
        the first row."""
        first = len(self)
        stored = [
            _whole_column(name, column, num_rows, values.typecode)
            for name, values, column in zip(self._names, self._arrays, columns, strict=True)
        ]
        for values, column in zip(self._arrays, stored, strict=True):
            values.frombytes(column.tobytes())
        return first

    def _misfit(self, row: tuple[int, ...]) -> UsageError:
        """Removes a row that was appended in part."""
        num_rows = len(self._arrays[-1])
        misfit = next(i for i, values in enumerate(self._arrays) if len(values) == num_rows)
        for values in self._arrays:
            del values[num_rows:]
        return UsageError(
            f"{self._names[misfit]} cannot be {row[misfit]!r}", remedy="check the unit"
        )

    def __len__(self) -> int:
        return len(self._arrays[0])

    def table(self) -> _T:
        columns = {
            name: np.array(values, dtype=values.typecode)
            for name, values in zip(self._names, self._arrays, strict=True)
        }
        return self._table(**columns)


class GraphBuilder:
    """Builds a Graph. Methods return the new id; ``build`` verifies the whole graph.

    >>> b = GraphBuilder()
    >>> rank = b.rank()
    >>> stream = b.resource("compute", rank=rank)
    >>> forward = b.op("forward", kind=OpKind.FORWARD, rank=rank, resource=stream, work_ns=5)
    >>> backward = b.op("backward", rank=rank, resource=stream, work_ns=10, after=[forward])
    >>> b.build().num_ops
    2
    """

    def __init__(self, *, meta: dict[str, str] | None = None) -> None:
        self._pool = StringPool()
        self._ops = _Columns(Ops)
        self._src = array("i")
        self._dst = array("i")
        self._carries = _Columns(Carries)
        self._resources = _Columns(Resources)
        self._interference = _Columns(Interference)
        self._buffers = _Columns(Buffers)
        self._gradients = _Columns(Gradients)
        self._ranks = _Columns(Ranks)
        self._measured = _Columns(MeasuredSteps)
        self._num_gangs = 0
        self._meta = dict(meta or {})
        self.ledger = Ledger()

    @property
    def num_ops(self) -> int:
        return len(self._ops)

    def note_meta(self, key: str, value: str) -> None:
        self._meta[key] = value

    def rank(self, *, role: Role = Role.WORKER, host: str = "") -> int:
        return self._ranks.append(role, self._pool.number(host))

    def resource(
        self,
        name: str,
        *,
        rank: int = NONE,
        kind: ResourceKind = ResourceKind.COMPUTE,
        width: int = 1,
        discipline: Discipline = Discipline.PRIORITY,
    ) -> int:
        """Adds an exclusive resource: ``width`` operations at a time, each at full speed."""
        return self._resources.append(kind, rank, width, 0, discipline, self._pool.number(name))

    def shared_resource(
        self,
        name: str,
        *,
        rank: int = NONE,
        kind: ResourceKind = ResourceKind.LINK_OUT,
        capacity: float = 1.0,
        width: int = UNLIMITED_WIDTH,
        discipline: Discipline = Discipline.PRIORITY,
    ) -> int:
        """Adds a resource whose speed, that of ``capacity`` operations, is shared by those that
        progress."""
        if not 0 < capacity <= _MAX_CAPACITY:
            raise UsageError(
                f"resource {name!r} has capacity {capacity}", remedy="set a capacity above 0"
            )
        return self._resources.append(
            kind, rank, width, _fixed_point(capacity), discipline, self._pool.number(name)
        )

    def interfere(self, *, victim: int, aggressor: int, rate: float) -> int:
        """Makes ``victim`` run at ``rate`` (0 to 1) of its speed while ``aggressor`` is busy."""
        if not 0 <= rate <= 1:
            raise UsageError(f"interference at rate {rate}", remedy="make it 0.001 to 1")
        return self._interference.append(victim, aggressor, _fixed_point(rate))

    def gang(self) -> int:
        self._num_gangs += 1
        return self._num_gangs - 1

    def op(
        self,
        name: str,
        *,
        rank: int,
        work_ns: int,
        kind: OpKind = OpKind.OTHER,
        resource: int = NONE,
        after: Iterable[int] = (),
        size_bytes: int = 0,
        priority: int = 0,
        gang: int = NONE,
        layer: str | None = None,
        step: int = 0,
    ) -> int:
        number = self._pool.number
        new = self._ops.append(
            kind,
            rank,
            resource,
            work_ns,
            size_bytes,
            priority,
            gang,
            NONE if layer is None else number(layer),
            step,
            number(name),
        )
        for before in after:
            self._src.append(before)
            self._dst.append(new)
        return new

    def string(self, text: str) -> int:
        """Returns the number of a string, for columns of names and layers."""
        return self._pool.number(text)

    def ops(
        self,
        name: NDArray[np.integer[Any]],
        *,
        rank: ArrayLike,
        work_ns: ArrayLike,
        kind: ArrayLike = OpKind.OTHER,
        resource: ArrayLike = NONE,
        size_bytes: ArrayLike = 0,
        priority: ArrayLike = 0,
        gang: ArrayLike = NONE,
        layer: ArrayLike = NONE,
        step: ArrayLike = 0,
    ) -> int:
        """Adds one operation per entry of ``name`` and returns the id of the first. A single value
        stands for all of them; names and layers are numbers from ``string``."""
        return self._ops.extend(
            len(name), kind, rank, resource, work_ns, size_bytes, priority, gang, layer, step, name
        )

    def edge(self, src: int, dst: int) -> None:
        """Makes ``dst`` wait for ``src``."""
        self._src.append(src)
        self._dst.append(dst)

    def edges(self, src: ArrayLike, dst: NDArray[np.integer[Any]]) -> None:
        """Makes each of ``dst`` wait for the ``src`` beside it, or for the only one."""
        sources = _whole_column("src", src, len(dst), "i")
        self._dst.frombytes(_whole_column("dst", dst, len(dst), "i").tobytes())
        self._src.frombytes(sources.tobytes())

    def carry(self, src: int, dst: int) -> None:
        """Makes ``dst`` of the next window wait for ``src`` of this one."""
        self._carries.append(src, dst)

    def buffer(
        self,
        size_bytes: int,
        *,
        rank: int,
        kind: MemoryKind = MemoryKind.OTHER,
        taken_by: int = NONE,
        given_by: int = NONE,
        later: bool = False,
        layer: str | None = None,
    ) -> int:
        layer_number = NONE if layer is None else self._pool.number(layer)
        return self._buffers.append(rank, size_bytes, kind, taken_by, given_by, later, layer_number)

    def buffers(
        self,
        size_bytes: NDArray[np.integer[Any]],
        *,
        rank: ArrayLike,
        kind: ArrayLike,
        taken_by: ArrayLike,
        given_by: ArrayLike,
        layer: ArrayLike = NONE,
    ) -> int:
        """Adds one buffer per entry of ``size_bytes``, as ``ops`` adds operations."""
        return self._buffers.extend(
            len(size_bytes), rank, size_bytes, kind, taken_by, given_by, 0, layer
        )

    def gradient(
        self,
        name: str,
        *,
        rank: int,
        size_bytes: int,
        made_by: int,
        carried_by: int,
        used_by: int,
        step: int = 0,
    ) -> int:
        return self._gradients.append(
            rank, step, self._pool.number(name), size_bytes, made_by, carried_by, used_by
        )

    def measured_step(self, *, rank: int, step: int, dur_ns: int, explained_ns: int) -> None:
        self._measured.append(rank, step, dur_ns, explained_ns)

    def build(self) -> Graph:
        graph = Graph(
            ops=self._ops.table(),
            edges=self._edge_table(),
            resources=self._resources.table(),
            ranks=self._ranks.table(),
            strings=self._pool.table(),
            carries=self._carries.table(),
            interference=self._interference.table(),
            buffers=self._buffers.table(),
            gradients=self._gradients.table(),
            measured=self._measured.table(),
            meta=self._meta,
            ledger=self.ledger,
        )
        verify(graph)
        return graph

    def _edge_table(self) -> Edges:
        src = np.array(self._src, dtype=np.int32)
        dst = np.array(self._dst, dtype=np.int32)
        if len(src) and (src.min() < 0 or src.max() >= len(self._ops)):
            bad = int(src[(src < 0) | (src >= len(self._ops))][0])
            raise UsageError(
                f"an edge starts at operation {bad}, which does not exist",
                remedy="use the ids that op() returned",
            )
        return Edges.from_pairs(src, dst, num_ops=len(self._ops))


def _whole_column(name: str, values: ArrayLike, num_rows: int, typecode: str) -> NDArray[Any]:
    """Returns the column in its stored type; a value that does not fit is a UsageError."""
    column = np.asarray(values)
    stored = column.astype(typecode)
    misfits = np.flatnonzero(stored != column)
    if len(misfits):
        raise UsageError(
            f"{name} cannot be {column.reshape(-1)[misfits[0]]}", remedy="check the unit"
        )
    if column.ndim and len(column) != num_rows:
        raise UsageError(
            f"there are {len(column)} values of {name} for {num_rows} rows",
            remedy="pass one value per row",
        )
    return np.broadcast_to(stored, (num_rows,))


def _fixed_point(value: float) -> int:
    return max(1, round(value * RATE_ONE))
