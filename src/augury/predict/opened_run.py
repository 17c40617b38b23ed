"""A recorded run's folder, a graph file or a graph, read when first needed, and only once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from augury.core.errors import UsageError
from augury.core.progress import Progress, silent
from augury.core.units import parse_bytes

if TYPE_CHECKING:
    from augury.build.recorded.training_facts import TrainingFacts
    from augury.core.graph.graph import Graph
    from augury.core.trace.trace import Calibration, Trace
    from augury.costs.links import Links
    from augury.costs.module_costs import ModuleCosts
    from augury.passes.protocol import Scene


@dataclass(frozen=True, eq=False)
class FineRun:
    """A recorded run with the links that its wire record shows.

    ``graph`` has its collectives whole; ``expanded`` has them as sends and receives on links.
    """

    graph: Graph
    calibration: Sequence[Calibration]
    links: Links
    progress: Progress = field(default=silent, repr=False)

    @property
    def scene(self) -> Scene:
        """The recorded graph and its links, which passes change."""
        from augury.passes.protocol import Scene

        return Scene.recorded(self.graph, self.calibration, links=self.links)

    @cached_property
    def expanded(self) -> Graph:
        from augury.passes.expand_collectives import EXPAND_COLLECTIVES

        with self.progress("expanding collectives"):
            return EXPAND_COLLECTIVES.apply(self.scene).scene.graph


@dataclass(frozen=True, eq=False)
class OpenedRun:
    """``max_bytes`` limits the unpacked size: of the graph file, or of all files of the run. A
    graph in memory (``given``) is not read from ``path``, which only names it."""

    path: Path
    max_bytes: int | None = None
    progress: Progress = field(default=silent, repr=False)
    given: Graph | None = field(default=None, repr=False)

    @property
    def is_recorded(self) -> bool:
        """Whether this is a run's folder rather than a file."""
        return self.given is None and self.path.is_dir()

    @cached_property
    def trace(self) -> Trace:
        """The trace of a recorded run; a graph file is refused."""
        from augury.ingest.open_run import open_run

        with self.progress(f"reading {self.path}"):
            trace = open_run(self.path, max_bytes=run_cap(self.max_bytes))
        _ = self.digest  # belongs to the files as they were read
        return trace

    @cached_property
    def digest(self) -> str:
        """Digest of the recorded run's files."""
        from augury.ingest.run_files import run_digest

        cap = run_cap(self.max_bytes)
        return run_digest(self.path, max_bytes=cap, is_just_opened=True)

    @cached_property
    def graph(self) -> Graph:
        if self.given is not None:
            return self.given
        if self.is_recorded:
            from augury.build.recorded.recorded_graph import build_recorded

            trace = self.trace
            with self.progress(f"building the graph of {len(trace.events):,} events"):
                return build_recorded(trace)
        from augury.core.graph.graph_file import DEFAULT_MAX_BYTES, load_graph

        cap = DEFAULT_MAX_BYTES if self.max_bytes is None else self.max_bytes
        with self.progress(f"reading {self.path}"):
            return load_graph(self.path, max_bytes=cap)

    @property
    def job_command(self) -> list[str]:
        """The command that ``augury run`` started; empty if unknown."""
        ranks = self.trace.ranks if self.is_recorded else []
        return next((facts.job_command for facts in ranks if facts.job_command), [])

    @property
    def calibration(self) -> Sequence[Calibration]:
        """Network measurements of the recorder; a graph file has none."""
        return self.trace.calibration if self.is_recorded else []

    @cached_property
    def scene(self) -> Scene:
        """The graph with all that passes need: costs and facts of the training as far as the run
        shows them."""
        from augury.passes.protocol import Scene

        return Scene.recorded(
            self.graph,
            self.calibration,
            training=self.training,
            module_costs=self.module_costs,
        )

    @cached_property
    def training(self) -> TrainingFacts:
        """Facts of a recorded run's training; a graph file has none."""
        from augury.build.recorded.training_facts import TrainingFacts, training_facts

        return training_facts(self.trace) if self.is_recorded else TrainingFacts()

    @property
    def module_costs(self) -> ModuleCosts:
        """Times of modules that calibration measured; a graph file has none."""
        from augury.costs.module_costs import ModuleCosts, module_timings

        if not self.is_recorded:
            return ModuleCosts()
        facts = self.training
        return ModuleCosts(
            timings=module_timings(one.module_timings for one in self.trace.ranks),
            class_names=facts.module_classes,
            recorded_threads=max(facts.num_threads, default=0),
            cores_per_rank=min(facts.cores_per_rank, default=0.0),
        )

    @cached_property
    def fine(self) -> FineRun:
        """The run with the links seen by ``augury run --wire``."""
        if not self.is_recorded:
            raise UsageError(
                f"{self.path} is a graph, and graphs hold no wire record",
                remedy="give the folder of a run recorded with `augury run --wire`",
            )
        from augury.costs.links import fit_links
        from augury.ingest.wire.read_wire import read_wire

        trace = self.trace
        with self.progress("reading the wire record"):
            wire = read_wire(self.path, trace)
        graph = self.graph
        graph = graph.evolve(ledger=graph.ledger.merged(wire.ledger))
        links = fit_links(wire, graph.num_ranks)
        return FineRun(graph, trace.calibration, links, self.progress)


def open_source(
    path: Path, *, max_bytes: int | str | None = None, progress: Progress = silent
) -> OpenedRun:
    """Opens a run's folder or a graph file; a textual ``max_bytes`` has a unit, such as 2GiB."""
    cap = parse_bytes(max_bytes) if isinstance(max_bytes, str) else max_bytes
    return OpenedRun(Path(path), cap, progress)


def open_graph(graph: Graph, *, progress: Progress = silent) -> OpenedRun:
    """Opens a graph in memory, under the name ``<graph>``."""
    return OpenedRun(Path("<graph>"), progress=progress, given=graph)


def run_cap(max_bytes: int | str | None) -> int:
    """Limit on the unpacked size of all files of a run."""
    from augury.ingest.run_files import MAX_RUN_BYTES

    if max_bytes is None:
        return MAX_RUN_BYTES
    return parse_bytes(max_bytes) if isinstance(max_bytes, str) else max_bytes
