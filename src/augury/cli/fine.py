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
    from augury.passes.expand_collectives import Topology


@dataclass(frozen=True, slots=True)
class FineRun:
    """``graph`` has its collectives whole; ``links`` is what they were recorded on."""

    graph: Graph
    calibration: list[Calibration]
    links: Links

    def expanded(self) -> Graph:
        from augury.passes.expand_collectives import expand

        with working("expanding collectives"):
            return expand(self.graph, self.links)


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


def topology_of(
    algorithm: str | None, ring_order: str | None, half_duplex: bool
) -> Topology | None:
    """None if nothing is to be otherwise."""
    if algorithm is None and ring_order is None and not half_duplex:
        return None
    from augury.passes.expand_collectives import RECORDED, Topology

    order = None
    if ring_order is not None:
        parts = [part.strip() for part in ring_order.split(",")]
        if not all(part.isascii() and part.isdecimal() and len(part) < 7 for part in parts):
            raise UsageError(f"{ring_order!r} is no order of ranks", remedy="write it as 0,2,1,3")
        order = tuple(int(part) for part in parts)
    return Topology(
        algorithm=algorithm or RECORDED.algorithm, ring_order=order, half_duplex=half_duplex
    )


def words_of(topology: Topology) -> list[str]:
    from augury.passes.expand_collectives import RECORDED

    words = []
    if topology.algorithm != RECORDED.algorithm:
        words.append(f"all-reduce by {topology.algorithm}")
    if topology.ring_order is not None:
        words.append(f"ring in the order {', '.join(map(str, topology.ring_order))}")
    if topology.half_duplex:
        words.append("links that send or receive, not both at once")
    return words
