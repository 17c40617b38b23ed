"""Memory and measured steps of the graph of a recorded run."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from augury.build.recorded.recorded_run import Place, RecordedRun
from augury.core.enums import MemoryKind, OpKind
from augury.core.graph.builder import GraphBuilder
from augury.core.measured_step import counted_rows


def add_memory(
    builder: GraphBuilder,
    run: RecordedRun,
    row_of: Mapping[int, int],
    ops: Mapping[Place, list[int]],
) -> None:
    """Adds the recorded memory of each rank. ``ops`` are the operations of the segments.
    Activations live from the first forward to the last backward of a step."""
    memory = run.trace.memory
    lives = {
        place: _life_of_activations(run, place, ops[place])
        for place in ((rank, step) for rank in row_of for step in run.steps)
    }
    for row in range(len(memory)):
        rank = int(memory.rank[row])
        if rank not in row_of:
            continue
        kind, size = MemoryKind(int(memory.kind[row])), int(memory.size_bytes[row])
        layer = run.trace.strings[int(memory.layer[row])] or None
        if kind != MemoryKind.ACTIVATION:
            builder.buffer(size, rank=row_of[rank], kind=kind, layer=layer)
            continue
        for step in run.steps:
            taken, given = lives[rank, step]
            if taken is not None and given is not None:
                builder.buffer(
                    size,
                    rank=row_of[rank],
                    kind=kind,
                    layer=layer,
                    taken_by=taken,
                    given_by=given,
                )


def _life_of_activations(
    run: RecordedRun, place: Place, ops: list[int]
) -> tuple[int | None, int | None]:
    kinds = [segment.kind for segment in run.segments[place]]
    first = kinds.index(OpKind.FORWARD) if OpKind.FORWARD in kinds else None
    backward = [i for i, kind in enumerate(kinds) if kind == OpKind.BACKWARD]
    if first is None or not backward or backward[-1] < first:
        return None, None
    return ops[first], ops[backward[-1]]


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
