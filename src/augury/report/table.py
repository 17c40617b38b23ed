"""Writes a Timeline as a Parquet table, one row per operation."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from augury.core.enums import OpKind
from augury.core.files import new_file
from augury.core.timeline import Reason, Timeline

if TYPE_CHECKING:
    import polars as pl


def write_parquet(timeline: Timeline, path: Path, *, force: bool = False) -> None:
    with new_file(path, force=force) as file:
        as_frame(timeline).write_parquet(file)


def as_frame(timeline: Timeline) -> pl.DataFrame:
    """Returns the table; missing indices are null, and names are not escaped."""
    import polars as pl

    graph, ops = timeline.graph, timeline.graph.ops
    strings = pl.Series(list(graph.strings), dtype=pl.String)
    kinds = pl.Series([_label(kind) for kind in range(256)], dtype=pl.String)
    resource_names = np.append(graph.resources.name, -1)

    def text(index: NDArray[Any]) -> pl.Series:
        return strings.gather(_nullable(index))

    return pl.DataFrame(
        {
            "op": np.arange(graph.num_ops, dtype=np.int32),
            "rank": ops.rank,
            "step": _nullable(ops.step),
            "kind": kinds.gather(ops.kind),
            "name": text(ops.name),
            "layer": text(ops.layer),
            "resource": text(resource_names[ops.resource]),
            "start_ns": timeline.start_ns,
            "end_ns": timeline.end_ns,
            "work_ns": ops.work_ns,
            "size_bytes": ops.size_bytes,
            "priority": ops.priority,
            "gang": _nullable(ops.gang),
            "critical": _reasons(timeline),
        }
    )


def _nullable(index: NDArray[Any]) -> pl.Series:
    import polars as pl

    series = pl.Series(index)
    return series.set(series < 0, None)


def _reasons(timeline: Timeline) -> pl.Series:
    """Returns why each operation is on the critical path; null if it is not."""
    import polars as pl

    first = np.full(timeline.graph.num_ops, -1, dtype=np.int64)
    path = timeline.critical_path
    first[path.op[::-1]] = path.reason[::-1]
    labels = pl.Series([reason.label for reason in Reason], dtype=pl.String)
    return labels.gather(_nullable(first))


def _label(kind: int) -> str | None:
    return OpKind(kind).label if kind in set(OpKind) else None
