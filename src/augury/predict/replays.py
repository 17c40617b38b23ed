"""Replays of recorded and changed graphs; a deadlock of a graph that Augury built is a defect."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from augury.core.errors import DeadlockError, DefectError
from augury.core.progress import Progress, silent
from augury.replay.run import replay

if TYPE_CHECKING:
    from augury.core.graph.graph import Graph
    from augury.core.timeline import Timeline

Engine = Literal["auto", "native", "reference"]


def replay_graph(
    graph: Graph, *, engine: Engine = "auto", fold: bool = True, progress: Progress = silent
) -> Timeline:
    """Replays a graph. A recorded program has run, so a deadlock of its graph is a DefectError;
    a synthetic graph may deadlock (DeadlockError)."""
    with progress(f"replaying {graph.num_ops:,} operations"):
        try:
            return replay(graph, engine=engine, fold=fold)
        except DeadlockError as error:
            if not str(graph.meta.get("source", "")).startswith("recorded"):
                raise
            raise DefectError(
                f"the graph that Augury built from this run deadlocks: {_cycle(error)}",
                remedy="this is a defect of Augury, not of the program, which ran: please report"
                " it with the run's folder; other windows (--steps) may replay",
            ) from error


def replay_changed(
    graph: Graph, *, engine: Engine = "auto", fold: bool = True, progress: Progress = silent
) -> Timeline:
    """Replays a graph that a pass has changed; a deadlock is a DefectError."""
    try:
        return replay_graph(graph, engine=engine, fold=fold, progress=progress)
    except (DeadlockError, DefectError) as error:
        found = error if isinstance(error, DeadlockError) else error.__cause__
        if not isinstance(found, DeadlockError):
            raise
        raise DefectError(
            f"the changed graph, which Augury made, deadlocks: {_cycle(found)}",
            remedy="this is a defect of Augury's passes, not of the program: please report it"
            " with the run's folder, and leave that change out",
        ) from found


def _cycle(error: DeadlockError) -> str:
    return error.cause.partition(": ")[2]
