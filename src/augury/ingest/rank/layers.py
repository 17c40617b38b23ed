"""Which layer an event works for: from module ranges, and for backward from autograd's numbers."""

from __future__ import annotations

import numpy as np

from augury.core.columns import U1
from augury.core.enums import Phase
from augury.ingest.formats.kineto import KinetoTrace
from augury.ingest.rank.event_names import EVALUATE, MODULE_RANGE


def layers(trace: KinetoTrace, phase: U1) -> list[str]:
    """Empty where unknown. A forward operation lies in its module's range; a backward node has the
    sequence number of the forward operation that made it."""
    result = [""] * len(trace)
    of = phase.tolist()
    forward, backward = int(Phase.FORWARD), int(Phase.BACKWARD)
    maker: dict[int, int] = {}
    parents = trace.parent.tolist()
    for i, parent in enumerate(parents):
        name = trace.name[i]
        if name.startswith(MODULE_RANGE):
            result[i] = name[len(MODULE_RANGE) :]
        elif parent >= 0:
            result[i] = result[parent]
        sequence = trace.args[i].sequence
        if of[i] == forward and sequence is not None and sequence >= 0:
            # Numbers count what autograd will do: the last to bear one is what took it.
            maker[sequence] = i
    for i, parent in enumerate(parents):
        if of[i] != backward:
            continue
        args = trace.args[i]
        if args.forward_thread and args.sequence in maker:
            result[i] = result[maker[args.sequence]]
        elif parent >= 0:
            result[i] = result[parent]
    return result


def backward_nodes(trace: KinetoTrace, phase: U1) -> list[int]:
    """In order of time, without the engine's frames around them, which light windows lack."""
    has_frames = any(name.startswith(EVALUATE) for name in trace.name)
    parents = trace.parent.tolist()
    rows = [
        i
        for i in np.flatnonzero(phase == Phase.BACKWARD).tolist()
        if (
            parents[i] >= 0 and trace.name[parents[i]] == EVALUATE + trace.name[i]
            if has_frames
            else trace.category[i] == "cpu_op"
        )
    ]
    return sorted(rows, key=trace.start_ns.__getitem__)
