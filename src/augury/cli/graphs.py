"""Reading and replaying a graph for a verb: progress, caps, and nothing imported too early."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from augury.cli.progress import working
from augury.core.units import parse_bytes

if TYPE_CHECKING:
    from augury.core.errors import DeadlockError
    from augury.core.graph.graph import Graph
    from augury.core.ledger import Ledger
    from augury.core.timeline import Timeline
    from augury.core.trace.trace import Calibration
    from augury.costs.prediction_interval import Representation


def read_graph(path: Path, *, max_bytes: str | None) -> Graph:
    """A graph's file, or a recorded run's folder."""
    return read_calibrated(path, max_bytes=max_bytes)[0]


def read_calibrated(path: Path, *, max_bytes: str | None) -> tuple[Graph, list[Calibration]]:
    """With what the recorder measured of the network; of a graph's file nothing."""
    if path.is_dir():
        return read_recorded(path, max_bytes=max_bytes)
    import_numpy()
    from augury.core.graph.graph_file import DEFAULT_MAX_BYTES, load_graph

    cap = DEFAULT_MAX_BYTES if max_bytes is None else parse_bytes(max_bytes)
    with working(f"reading {path}"):
        return load_graph(path, max_bytes=cap), []


def read_recorded(folder: Path, *, max_bytes: str | None = None) -> tuple[Graph, list[Calibration]]:
    import_numpy()
    from augury.build.recorded.recorded_graph import build_recorded
    from augury.ingest.open_run import open_run

    with working(f"reading {folder}"):
        trace = open_run(folder, max_bytes=run_cap(max_bytes))
    with working(f"building the graph of {len(trace.events):,} events"):
        return build_recorded(trace), trace.calibration


def run_cap(max_bytes: str | None) -> int:
    """Bytes that all files of a run may unpack to."""
    from augury.ingest.run_files import MAX_RUN_BYTES

    return MAX_RUN_BYTES if max_bytes is None else parse_bytes(max_bytes)


def replay_graph(
    graph: Graph, *, engine: Literal["auto", "native", "reference"] = "auto", fold: bool = True
) -> Timeline:
    """A recorded run has run: where the graph that was built from it deadlocks, that is a
    DefectError."""
    import_numpy()
    from augury.core.errors import DeadlockError, DefectError
    from augury.replay.run import replay

    with working(f"replaying {graph.num_ops:,} operations"):
        try:
            return replay(graph, engine=engine, fold=fold)
        except DeadlockError as error:
            if not str(graph.meta.get("source", "")).startswith("recorded"):
                raise  # a made-up graph may deadlock; what was recorded has run
            raise DefectError(
                f"the graph that Augury built from this run deadlocks: {_circle(error)}",
                remedy="this is a defect of Augury, not of the program, which ran: please report"
                " it with the run's folder; other windows (--steps) may replay",
            ) from error


def replay_changed(
    graph: Graph, *, engine: Literal["auto", "native", "reference"] = "auto"
) -> Timeline:
    """Replay a graph that Augury has rewritten. Where it deadlocks, raise a DefectError."""
    from augury.core.errors import DeadlockError, DefectError

    try:
        return replay_graph(graph, engine=engine)
    except (DeadlockError, DefectError) as error:
        found = error if isinstance(error, DeadlockError) else error.__cause__
        if not isinstance(found, DeadlockError):
            raise
        raise DefectError(
            f"the changed graph, which Augury made, deadlocks: {_circle(found)}",
            remedy="this is a defect of Augury's rewriting, not of the program: please report it"
            " with the run's folder, and leave that change out",
        ) from found


def _circle(error: DeadlockError) -> str:
    return error.cause.partition(": ")[2]


def representation_of(replayed: Timeline) -> Representation | None:
    """How well the windows of a recorded run, replayed unchanged, stand for the run; None where
    the graph has no steps of a recorded run."""
    graph = replayed.graph
    if graph.num_steps < 2 or len(graph.carries):
        return None
    from augury.core.measured_step import measured_steps
    from augury.costs.prediction_interval import representation
    from augury.replay.utilization import step_durations_ns

    slowest = max(range(len(replayed.rank_step_ns)), key=replayed.rank_step_ns.__getitem__)
    steps = replayed.rank_steps.of_rank(slowest)
    return representation(steps.step, step_durations_ns(steps), *measured_steps(graph))


def warnings_of(run: Representation | None) -> Ledger:
    from augury.core.ledger import Ledger
    from augury.costs.prediction_interval import note_unrepresentative

    ledger = Ledger()
    if run is not None:
        note_unrepresentative(run, ledger)
    return ledger


def predicted_interval(
    timeline: Timeline, run: Representation | None, *, model_error: float = 0.0
) -> tuple[int, int] | None:
    """The 90 % interval of a replayed step. ``run`` is of the recorded run that the prediction
    starts from."""
    if run is None:
        return None
    from augury.costs.prediction_interval import interval_ns

    return interval_ns(timeline.step_ns, run, model_error=model_error)


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
