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
    from augury.core.trace import Calibration


def read_graph(path: Path, *, max_bytes: str) -> Graph:
    """A graph's file, or a recorded run's folder."""
    return read_calibrated(path, max_bytes=max_bytes)[0]


def read_calibrated(path: Path, *, max_bytes: str) -> tuple[Graph, list[Calibration]]:
    """With what the recorder measured of the network; of a graph's file nothing."""
    cap = parse_bytes(max_bytes)
    if path.is_dir():
        return read_recorded(path)
    import_numpy()
    from augury.core.graph_file import load_graph

    with working(f"reading {path}"):
        return load_graph(path, max_bytes=cap), []


def read_recorded(folder: Path) -> tuple[Graph, list[Calibration]]:
    import_numpy()
    from augury.build.recorded import build_recorded
    from augury.ingest.run import open_run

    with working(f"reading {folder}"):
        trace = open_run(folder)
    with working(f"building the graph of {len(trace.events):,} events"):
        return build_recorded(trace), trace.calibration


def replay_graph(
    graph: Graph, *, engine: Literal["auto", "native", "reference"] = "auto", fold: bool = True
) -> Timeline:
    import_numpy()
    from augury.replay.run import replay

    with working(f"replaying {graph.num_ops:,} operations"):
        return replay(graph, engine=engine, fold=fold)


def predicted_interval(timeline: Timeline, *, model_error: float = 0.0) -> tuple[int, int] | None:
    """Where several steps were recorded, how far they spread tells how sure the prediction is."""
    if timeline.graph.num_steps < 2 or len(timeline.graph.carries):
        return None
    from augury.costs.interval import interval_ns
    from augury.replay.use import step_durations_ns

    slowest = max(range(len(timeline.rank_step_ns)), key=timeline.rank_step_ns.__getitem__)
    steps = timeline.rank_steps.of_rank(slowest)
    return interval_ns(
        timeline.step_ns, steps.step, step_durations_ns(steps), model_error=model_error
    )


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
