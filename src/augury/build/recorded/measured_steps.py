"""Measured steps of the graph of a recorded run."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from augury.build.recorded.recorded_run import RecordedRun
from augury.core.enums import OpKind
from augury.core.graph.builder import GraphBuilder
from augury.core.measured_step import counted_rows


def add_measured(builder: GraphBuilder, run: RecordedRun, row_of: Mapping[int, int]) -> None:
    """Adds the plain steps of each rank, with which a prediction is compared."""
    steps = run.trace.steps
    rows = np.flatnonzero(counted_rows(run.trace))
    unexplained = {rank: _unexplained(run, rank) for rank in run.ranks}
    for row in rows.tolist():
        rank = int(steps.rank[row])
        dur_ns = int(steps.end_ns[row] - steps.start_ns[row])
        if rank in row_of and dur_ns > 0:
            builder.measured_step(
                rank=row_of[rank],
                step=int(steps.step[row]),
                dur_ns=dur_ns,
                explained_ns=round(dur_ns * (1 - unexplained[rank])),
            )


def _unexplained(run: RecordedRun, rank: int) -> float:
    """Returns the unexplained share of a rank's timed steps."""
    steps = run.trace.steps
    missing = total = 0
    for step in run.steps:
        row = np.flatnonzero((steps.rank == rank) & (steps.step == step))
        total += int((steps.end_ns[row] - steps.start_ns[row]).sum())
        missing += sum(
            segment.dur_ns
            for segment in run.segments[rank, step]
            if segment.kind == OpKind.UNEXPLAINED
        )
    return missing / total if total else 0.0
