"""Predicts what changes would do to a run: ``augury whatif``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from augury.core.errors import UsageError
from augury.passes.expand_collectives import RECORDED, Topology
from augury.passes.network import fit_network
from augury.predict import changes
from augury.predict.prediction import predict_step, representation_of, warnings_of
from augury.predict.replays import Engine, replay_changed, replay_graph
from augury.predict.summarize import summarize_change

if TYPE_CHECKING:
    from augury.core.results.replay import WhatIfResult
    from augury.core.timeline import Timeline
    from augury.passes.expand_collectives import Topology
    from augury.predict.changes import Change
    from augury.predict.opened_run import OpenedRun

TOPOLOGY_ERROR = 0.03
"""Standard error of a prediction for another topology, as a share of the step."""


@dataclass(frozen=True, kw_only=True)
class WantedChanges:
    """Changes in the order in which they are made; ``topology`` and ``fine`` need a wire record."""

    changes: Sequence[Change]
    topology: Topology | None
    fine: bool

    @property
    def model_error(self) -> float:
        """Errors of the changes are independent: their squares add up."""
        own = sum(change.assumes**2 for change in self.changes)
        return float((own + (TOPOLOGY_ERROR if self.topology else 0.0) ** 2) ** 0.5)

    @property
    def words(self) -> list[str]:
        own = [change.words for change in self.changes]
        return own + (_topology_words(self.topology) if self.topology else [])


@dataclass(frozen=True, kw_only=True, eq=False)
class PredictedChange:
    before: Timeline
    after: Timeline
    result: WhatIfResult


def parse_changes(
    *,
    bandwidth: str | None = None,
    latency: str | None = None,
    ranks: int | None = None,
    bucket_mb: str | float | None = None,
    compute_scale: Sequence[str] | str | float | None = None,
    no_straggler: bool = False,
    perfect_overlap: bool = False,
    fine: bool = False,
    link_bandwidth: Sequence[str] | str | None = None,
    algorithm: str | None = None,
    ring_order: Sequence[int] | str | None = None,
    half_duplex: bool = False,
) -> WantedChanges:
    """The changes that options of ``augury whatif`` name; raises UsageError where there is none."""
    link_rates = _texts(link_bandwidth)
    wanted = [
        # In this order: buckets are formed for the new number of ranks.
        *([changes.ranks(ranks)] if ranks is not None else []),
        *([changes.buckets(str(bucket_mb))] if bucket_mb is not None else []),
        *([changes.bandwidth(bandwidth)] if bandwidth is not None else []),
        *(changes.link_bandwidth(text) for text in link_rates),
        *([changes.latency(latency)] if latency is not None else []),
        *([changes.no_straggler()] if no_straggler else []),
        *(changes.compute_scale(text) for text in _texts(compute_scale)),
        *([changes.perfect_overlap()] if perfect_overlap else []),
    ]
    topology = _topology(algorithm, ring_order, half_duplex)
    if not wanted and topology is None:
        raise UsageError("no change is named", remedy="name one, such as --bandwidth 2x")
    is_fine = fine or topology is not None or bool(link_rates)
    return WantedChanges(changes=wanted, topology=topology, fine=is_fine)


def predict_change(
    run: OpenedRun, wanted: WantedChanges, *, engine: Engine = "auto"
) -> PredictedChange:
    """Replays the run without and with the changes."""
    progress = run.progress
    if wanted.fine:
        recorded = run.fine
        costs = fit_network(recorded.graph, recorded.calibration)
        before = replay_graph(recorded.expanded, engine=engine, progress=progress)
        changed = changes.make_all_fine(
            recorded.graph, costs, recorded.links, wanted.changes, wanted.topology
        )
    else:
        graph = run.graph
        costs = fit_network(graph, run.calibration)
        before = replay_graph(graph, engine=engine, progress=progress)
        changed = changes.make_all(graph, costs, wanted.changes)
    # The recorded steps measure the run without the change.
    unmeasured = changed.evolve(measured=changed.measured.empty())
    after = replay_changed(unmeasured, engine=engine, progress=progress)
    represented = representation_of(before)
    prediction = predict_step(
        after, represented, baseline_ns=before.step_ns, model_error=wanted.model_error
    )
    result = summarize_change(
        after, prediction, changes=wanted.words, ledger=warnings_of(represented)
    )
    return PredictedChange(before=before, after=after, result=result)


def _texts(values: Sequence[str] | str | float | None) -> list[str]:
    if values is None:
        return []
    return [str(values)] if isinstance(values, str | int | float) else list(values)


def _topology(
    algorithm: str | None, ring_order: Sequence[int] | str | None, half_duplex: bool
) -> Topology | None:
    """None where collectives stay as they were recorded."""
    if algorithm is None and ring_order is None and not half_duplex:
        return None
    order = None
    if ring_order is not None:
        parts = ring_order.split(",") if isinstance(ring_order, str) else map(str, ring_order)
        ranks = [part.strip() for part in parts]
        if not all(rank.isascii() and rank.isdecimal() and len(rank) < 7 for rank in ranks):
            raise UsageError(f"{ring_order!r} is no order of ranks", remedy="write it as 0,2,1,3")
        order = tuple(int(rank) for rank in ranks)
    return Topology(
        algorithm=algorithm or RECORDED.algorithm, ring_order=order, half_duplex=half_duplex
    )


def _topology_words(topology: Topology) -> list[str]:
    words = []
    if topology.algorithm != RECORDED.algorithm:
        words.append(f"all-reduce by {topology.algorithm}")
    if topology.ring_order is not None:
        words.append(f"ring in the order {', '.join(map(str, topology.ring_order))}")
    if topology.half_duplex:
        words.append("links that send or receive, not both at once")
    return words
