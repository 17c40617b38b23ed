"""Phase and layer of each event of a Kineto trace."""

from __future__ import annotations

import numpy as np

from augury.core.columns import U1
from augury.core.enums import Phase
from augury.ingest.formats.kineto import KinetoTrace
from augury.ingest.vocabulary.torch import (
    EVALUATE,
    MODULE_RANGE,
    annotated_phase,
    is_backward_node,
)


def phases(trace: KinetoTrace) -> U1:
    """An event has the phase of the event around it, unless its own name states another one.

    An unnamed event at top level has the phase of the event before it on its thread: loss functions
    belong to forward, a reducer's last copies to backward. An operation with a sequence number of
    autograd will be differentiated, so it is forward wherever it stands."""
    result = [Phase.NONE] * len(trace)
    last_on_thread: dict[int, Phase] = {}
    phase_of_name: dict[str, Phase | None] = {}
    threads = trace.thread.tolist()
    for i, parent in enumerate(trace.parent.tolist()):
        name = trace.name[i]
        if name not in phase_of_name:
            phase_of_name[name] = (
                Phase.BACKWARD if is_backward_node(name) else annotated_phase(name)
            )
        stated = phase_of_name[name]
        if trace.args[i].forward_thread:
            stated = Phase.BACKWARD  # a node with a name of its own
        if parent >= 0:
            around = result[parent]
            # Recomputed activations run forward modules within backward: that is backward's time.
            if stated is None or around in (Phase.BACKWARD, Phase.UPDATE):
                stated = around
            result[i] = stated
            continue
        thread = threads[i]
        if stated is None:
            args = trace.args[i]
            last = last_on_thread.get(thread, Phase.NONE)
            if args.sequence is not None and args.sequence >= 0 and not args.forward_thread:
                stated = Phase.FORWARD
            elif last in (Phase.FORWARD, Phase.BACKWARD):
                stated = last
            else:
                stated = Phase.NONE
        result[i] = stated
        last_on_thread[thread] = stated
    return np.array(result, dtype=np.uint8)


def layers(trace: KinetoTrace, phase: U1) -> list[str]:
    """Returns the layer of each event; empty where unknown.

    A forward operation lies in the range of its module. A backward node has the sequence number of
    the forward operation that created it."""
    result = [""] * len(trace)
    if not any(name.startswith(MODULE_RANGE) for name in trace.name):
        return result
    phase_of = phase.tolist()
    forward, backward = int(Phase.FORWARD), int(Phase.BACKWARD)
    creator: dict[int, int] = {}
    parents = trace.parent.tolist()
    for i, parent in enumerate(parents):
        name = trace.name[i]
        if name.startswith(MODULE_RANGE):
            result[i] = name[len(MODULE_RANGE) :]
        elif parent >= 0:
            result[i] = result[parent]
        sequence = trace.args[i].sequence
        if phase_of[i] == forward and sequence is not None and sequence >= 0:
            # Autograd shows the next free number: the last event with a number has taken it.
            creator[sequence] = i
    for i, parent in enumerate(parents):
        if phase_of[i] != backward:
            continue
        args = trace.args[i]
        if args.forward_thread and args.sequence in creator:
            result[i] = result[creator[args.sequence]]
        elif parent >= 0:
            result[i] = result[parent]
    return result


def backward_nodes(trace: KinetoTrace, phase: U1) -> list[int]:
    """Rows of backward nodes in order of time, without the frames that the engine opens around
    them in detail windows."""
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
