"""Tells whether a program reads its gradients between backward and the update, as clipping does.

Such a program needs all gradients before the update, whatever order carries them.
"""

from __future__ import annotations

import numpy as np

from augury.core.enums import Phase, StepState, StreamKind
from augury.core.trace.trace import Trace
from augury.core.vocabulary.torch import GRADIENT_READS


def reads_gradients(trace: Trace) -> bool:
    """Looks at the detailed steps; False without any."""
    steps = trace.steps
    return any(
        _reads_in_step(
            trace, int(steps.rank[row]), int(steps.start_ns[row]), int(steps.end_ns[row])
        )
        for row in np.flatnonzero(steps.state == StepState.DETAILED).tolist()
    )


def _reads_in_step(trace: Trace, rank: int, start_ns: int, end_ns: int) -> bool:
    events, own = trace.events, trace.of_rank(rank)
    rows = np.arange(own.start, own.stop)
    is_main = trace.streams.kind[events.stream[rows]] == StreamKind.MAIN_THREAD
    inside = (events.start_ns[rows] >= start_ns) & (events.start_ns[rows] < end_ns)
    rows = rows[is_main & inside]
    backward = rows[events.phase[rows] == Phase.BACKWARD]
    if not len(backward):
        return False
    is_between = (events.start_ns[rows] > events.start_ns[backward].max()) & (
        events.phase[rows] != Phase.UPDATE
    )
    return any(trace.name(row) in GRADIENT_READS for row in rows[is_between].tolist())
