"""Predicts what changes would do to a run: ``augury whatif``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from augury.core.errors import UsageError
from augury.passes.protocol import Scene
from augury.predict import changes
from augury.predict.prediction import predict_step, representation_of, warnings_of
from augury.predict.replays import Engine, replay_changed, replay_graph
from augury.predict.summarize import summarize_change

if TYPE_CHECKING:
    from augury.core.results.replay import WhatIfResult
    from augury.core.timeline import Timeline
    from augury.predict.changes import Change
    from augury.predict.opened_run import OpenedRun


@dataclass(frozen=True, kw_only=True)
class WantedChanges:
    """Changes in the order in which they are made; ``is_fine`` ones need a wire record."""

    changes: Sequence[Change]
    is_fine: bool


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
    order = ring_order
    if order is not None and not isinstance(order, str):
        order = ",".join(map(str, order))
    topology = changes.topology_of(algorithm, order, half_duplex)
    if not wanted and topology is None:
        raise UsageError("no change is named", remedy="name one, such as --bandwidth 2x")
    is_fine = fine or topology is not None or bool(link_rates)
    if is_fine:
        wanted.append(changes.expanded(topology))
    return WantedChanges(changes=wanted, is_fine=is_fine)


def predict_change(
    run: OpenedRun, wanted: WantedChanges, *, engine: Engine = "auto"
) -> PredictedChange:
    """Replays the run without and with the changes."""
    progress = run.progress
    recorded = run.fine.expanded if wanted.is_fine else run.graph
    before = replay_graph(recorded, engine=engine, progress=progress)
    scene = run.fine.scene if wanted.is_fine else Scene.recorded(run.graph, run.calibration)
    changed = changes.apply_all(scene, wanted.changes).scene.graph
    # The recorded steps measure the run without the change.
    unmeasured = changed.evolve(measured=changed.measured.empty())
    after = replay_changed(unmeasured, engine=engine, progress=progress)
    represented = representation_of(before)
    prediction = predict_step(
        after,
        represented,
        baseline_ns=before.step_ns,
        model_error=changes.error_of(wanted.changes).relative,
    )
    result = summarize_change(
        after, prediction, changes=changes.words_of(wanted.changes), ledger=warnings_of(represented)
    )
    return PredictedChange(before=before, after=after, result=result)


def _texts(values: Sequence[str] | str | float | None) -> list[str]:
    if values is None:
        return []
    return [str(values)] if isinstance(values, str | int | float) else list(values)
