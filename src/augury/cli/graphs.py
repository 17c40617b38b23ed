"""Reading and replaying a graph for a verb: progress, caps, and nothing imported too early."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from augury.cli.progress import working
from augury.core.units import parse_bytes

if TYPE_CHECKING:
    from augury.core.graph import Graph
    from augury.core.timeline import Timeline


def read_graph(path: Path, *, max_bytes: str) -> Graph:
    cap = parse_bytes(max_bytes)
    import_numpy()
    from augury.core.graph_file import load_graph

    with working(f"reading {path}"):
        return load_graph(path, max_bytes=cap)


def replay_graph(
    graph: Graph, *, engine: Literal["auto", "native", "reference"] = "auto", fold: bool = True
) -> Timeline:
    import_numpy()
    from augury.replay.run import replay

    with working(f"replaying {graph.num_ops:,} operations"):
        return replay(graph, engine=engine, fold=fold)


def import_numpy() -> None:
    """Without the threads that its linear algebra would start: they burn more time than a small
    replay takes, and nothing here multiplies matrices. Child processes see no trace of it."""
    name = "OPENBLAS_NUM_THREADS"
    if name in os.environ:
        return
    os.environ[name] = "1"
    try:
        import numpy  # noqa: F401
    finally:
        del os.environ[name]
