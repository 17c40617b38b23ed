"""Ranges of forward that contain training.

With manual optimization, Lightning calls the whole training step as the forward of
DistributedDataParallel: torch's range of that forward then contains backward, the wait for the
gradients and often the update.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from augury.core.columns import I4, I8
from augury.core.enums import Phase
from augury.core.vocabulary.torch import (
    ACCUMULATES_GRADIENT,
    FORWARD_RANGE,
    MODULE_RANGE,
    OPTIMIZER_STEP,
)
from augury.ingest.ancestors import enclosing, inherit
from augury.ingest.formats.kineto import KinetoTrace
from augury.ingest.rank.mixed_ranges import phases_of_names
from augury.ingest.vocabulary.torch import DDP_FORWARD

_FORWARD = (DDP_FORWARD, MODULE_RANGE, FORWARD_RANGE)


def end_forward_at_backward(trace: KinetoTrace) -> KinetoTrace:
    """Returns the trace with ranges of forward that contain a backward of training ended where that
    backward begins. A forward whose own gradients are part of its result, as in meta-learning, is
    followed by another backward before the update: it stays as it is."""
    gradients = np.flatnonzero(trace.name.where(ACCUMULATES_GRADIENT.__eq__))
    is_forward = trace.name.where(lambda name: name.startswith(_FORWARD))
    if not len(gradients) or not is_forward.any():
        return trace
    own = np.where(is_forward, np.arange(len(trace)), -1).astype(np.int32)
    innermost = inherit(trace.parent, ~is_forward, own)
    around = innermost[gradients]
    ranges = _with_outer(np.unique(around[around >= 0]), trace, innermost)
    outside = gradients[around < 0]
    updates = np.flatnonzero(trace.name.where(lambda name: name.startswith(OPTIMIZER_STEP)))
    trained = [row for row in ranges if not _is_differentiated(trace, row, outside, updates)]
    if not trained:
        return trace
    backward = np.flatnonzero(phases_of_names(trace) == Phase.BACKWARD)
    dur_ns = trace.dur_ns.copy()
    for row in trained:
        first = int(backward[np.searchsorted(backward, row)])
        dur_ns[row] = trace.start_ns[first] - trace.start_ns[row]
    return replace(trace, dur_ns=dur_ns, parent=enclosing(trace.thread, trace.start_ns, dur_ns))


def _with_outer(rows: I8, trace: KinetoTrace, innermost: I4) -> list[int]:
    """Returns the rows and those of all forward ranges around them."""
    found: set[int] = set()
    waiting = rows.tolist()
    while waiting:
        row = waiting.pop()
        if row >= 0 and row not in found:
            found.add(row)
            outer = int(trace.parent[row])
            waiting.append(int(innermost[outer]) if outer >= 0 else -1)
    return sorted(found)


def _is_differentiated(trace: KinetoTrace, row: int, outside: I8, updates: I8) -> bool:
    """Tells whether gradients are computed after a forward range and before the next update.
    ``outside`` are the rows of gradients that are computed in no forward."""
    end_ns = int(trace.start_ns[row] + trace.dur_ns[row])

    def first_ns(rows: I8, since_ns: int) -> int | None:
        times = trace.start_ns[rows[trace.thread[rows] == trace.thread[row]]]
        at = int(np.searchsorted(times, since_ns))
        return int(times[at]) if at < len(times) else None

    gradient_ns = first_ns(outside, end_ns)
    update_ns = first_ns(updates, int(trace.start_ns[row]))
    return gradient_ns is not None and (update_ns is None or gradient_ns < update_ns)
