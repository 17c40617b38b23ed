"""Which part of a step each event of a thread belongs to."""

from __future__ import annotations

import numpy as np

from augury.core.columns import U1
from augury.core.enums import Phase
from augury.ingest.formats.kineto import KinetoTrace
from augury.ingest.rank.event_names import annotated_phase, is_backward_node


def phases(trace: KinetoTrace) -> U1:
    """An event has the phase of what encloses it, unless its own name says another one.

    At top level, what nothing names goes with what ran before it on its thread: loss functions
    with forward, a reducer's last copies with backward. An operation that autograd gave a number
    will be differentiated, so it is forward wherever it stands."""
    result = [Phase.NONE] * len(trace)
    before: dict[int, Phase] = {}
    own: dict[str, Phase | None] = {}
    threads = trace.thread.tolist()
    for i, parent in enumerate(trace.parent.tolist()):
        name = trace.name[i]
        if name not in own:
            own[name] = Phase.BACKWARD if is_backward_node(name) else annotated_phase(name)
        said = own[name]
        if trace.args[i].forward_thread:
            said = Phase.BACKWARD  # a node with a name of its own
        if parent >= 0:
            around = result[parent]
            # Recomputed activations run forward modules within backward: that is backward's time.
            keeps = said is None or around in (Phase.BACKWARD, Phase.UPDATE)
            result[i] = around if keeps or said is None else said
            continue
        thread = threads[i]
        if said is None:
            args = trace.args[i]
            last = before.get(thread, Phase.NONE)
            if args.sequence is not None and args.sequence >= 0 and not args.forward_thread:
                said = Phase.FORWARD
            elif last in (Phase.FORWARD, Phase.BACKWARD):
                said = last
            else:
                said = Phase.NONE
        result[i] = said
        before[thread] = said
    return np.array(result, dtype=np.uint8)
