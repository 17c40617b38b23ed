"""How far the prediction of complete steps moves when a set of traces is damaged.

``python -m tests.ingest.variant_predictions`` prints the table of all variants.
"""

from __future__ import annotations

import os
import sys
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from augury.build.recorded.recorded_graph import build_recorded
from augury.core.errors import AuguryError
from augury.core.measured_step import measured_step_ns
from augury.ingest.imported import import_traces
from augury.replay.run import replay
from tests.ingest.trace_variants import Variant, variants


class IncompleteStepError(AssertionError):
    """The prediction uses a step that the undamaged set does not have."""


@dataclass(frozen=True)
class PredictedSteps:
    """Replayed times of the steps of one set, by rank."""

    spans: dict[int, list[tuple[int, int, int]]]
    """Measured duration, predicted start and predicted end of each step, in order."""
    step_ns: int
    measured_ns: int
    num_unmatched: int
    ledger: dict[str, int]

    @property
    def error_pct(self) -> float:
        return 100 * (self.step_ns / self.measured_ns - 1)

    @property
    def num_steps(self) -> int:
        return max(len(own) for own in self.spans.values())


def predict_steps(folder: Path) -> PredictedSteps:
    trace = import_traces([folder])
    graph = build_recorded(trace)
    timeline = replay(graph)
    ranks = sorted({int(rank) for rank in trace.steps.rank})
    used = [rank for rank in ranks if rank in {facts.rank for facts in trace.ranks}]
    measured = graph.measured
    spans: dict[int, list[tuple[int, int, int]]] = {}
    rows = sorted(set(measured.rank.tolist()))
    # Rows of the graph are the ranks that have complete steps, in order.
    complete = [
        rank for rank in used if np.isin(trace.steps.state[trace.steps.rank == rank], [1, 2]).any()
    ]
    assert len(complete) == len(rows)
    for row, rank in zip(rows, complete, strict=True):
        durations = dict(
            zip(
                measured.step[measured.rank == row].tolist(),
                measured.dur_ns[measured.rank == row].tolist(),
                strict=True,
            )
        )
        steps = timeline.rank_steps.of_rank(row)
        spans[rank] = [
            (durations[step], start, end)
            for step, start, end in zip(
                steps.step.tolist(), steps.start_ns.tolist(), steps.end_ns.tolist(), strict=True
            )
            if step in durations
        ]
    events = trace.events
    return PredictedSteps(
        spans=spans,
        step_ns=timeline.step_ns,
        measured_ns=measured_step_ns(graph) or 1,
        num_unmatched=int(((events.group >= 0) & (events.sequence < 0)).sum()),
        ledger={anomaly.name: anomaly.count for anomaly in graph.ledger},
    )


@cache
def predict_set(folder: Path) -> PredictedSteps:
    return predict_steps(folder)


def moved_pct(found: PredictedSteps, before: PredictedSteps) -> list[float]:
    """For each rank that the variant predicts: by how much the time from the start of its first
    complete step to the end of its last one moved."""
    moved = []
    for rank, own in found.spans.items():
        theirs = before.spans[rank]
        first, last = (_same_step(step[0], theirs) for step in (own[0], own[-1]))
        was = theirs[last][2] - theirs[first][1]
        moved.append(100 * ((own[-1][2] - own[0][1]) / was - 1))
    return moved


def _same_step(measured_ns: int, steps: list[tuple[int, int, int]]) -> int:
    """A step is recognized by its measured duration: numbers may have changed."""
    place = min(range(len(steps)), key=lambda i: abs(steps[i][0] - measured_ns))
    if abs(steps[place][0] - measured_ns) > 1e-3 * measured_ns:
        raise IncompleteStepError(f"a step of {measured_ns / 1e6:.3f} ms is no step of the set")
    return place


def predict_variant(variant: Variant, traces: Path, out: Path) -> PredictedSteps:
    return predict_steps(variant.write(traces, out))


def main() -> None:
    traces = Path(os.environ["AUGURY_TRACES"])
    worst_of_all = 0.0
    chosen = [v for v in variants() if all(word in v.label for word in sys.argv[1:])]
    for number, variant in enumerate(chosen, start=1):
        before = predict_set(traces / variant.source)
        with tempfile.TemporaryDirectory() as out:
            try:
                found = predict_variant(variant, traces, Path(out))
                moved = moved_pct(found, before)
            except (AuguryError, IncompleteStepError) as error:
                print(f"{number} | {variant.label} | {str(error)[:120]}", flush=True)
                continue
        worst = max(moved, key=abs)
        worst_of_all = max(worst_of_all, abs(worst))
        print(
            f"{number} | {variant.label} | ranks {len(moved)} | steps {found.num_steps}"
            f" | mean {np.mean(moved):+.2f} % | worst rank {worst:+.2f} %"
            f" | against measured {found.error_pct:+.2f} % (before {before.error_pct:+.2f} %)"
            f" | unmatched {found.num_unmatched}",
            flush=True,
        )
    print(f"worst {worst_of_all:.2f} %")


if __name__ == "__main__":
    main()
