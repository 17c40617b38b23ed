"""Fine replays for verbs: all-reduces as the sends and receives that the wire showed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from augury.cli.graphs import import_numpy, run_cap
from augury.cli.progress import working
from augury.core.errors import UsageError

if TYPE_CHECKING:
    from augury.core.graph.graph import Graph
    from augury.core.trace.trace import Calibration
    from augury.costs.links import Links
    from augury.passes.protocol import Scene


@dataclass(frozen=True, slots=True)
class FineRun:
    """``graph`` has its collectives whole; ``links`` is what they were recorded on."""

    graph: Graph
    calibration: list[Calibration]
    links: Links

    def scene(self) -> Scene:
        from augury.passes.protocol import Scene

        return Scene.recorded(self.graph, self.calibration, links=self.links)

    def expanded(self) -> Graph:
        from augury.passes.expand_collectives import EXPAND_COLLECTIVES

        with working("expanding collectives"):
            return EXPAND_COLLECTIVES.apply(self.scene()).scene.graph


def read_fine(path: Path, *, max_bytes: str | None = None) -> FineRun:
    if not path.is_dir():
        raise UsageError(
            f"{path} is a graph: it does not say what went over the wire",
            remedy="give the folder of a run recorded with `augury run --wire`",
        )
    import_numpy()
    from augury.build.recorded.recorded_graph import build_recorded
    from augury.costs.links import fit_links
    from augury.ingest.open_run import open_run
    from augury.ingest.wire.read_wire import read_wire

    with working(f"reading {path}"):
        trace = open_run(path, max_bytes=run_cap(max_bytes))
    with working("reading what went over the wire"):
        wire = read_wire(path, trace)
    with working(f"building the graph of {len(trace.events):,} events"):
        graph = build_recorded(trace)
    for anomaly in wire.ledger:
        graph.ledger.add(anomaly)
    return FineRun(graph, trace.calibration, fit_links(wire, graph.num_ranks))
