"""How long the parts of a rank's step took."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from augury.core.timeline import Timeline
from augury.passes.step_parts import StepParts


class StepTimes:
    """Of one rank in one step of a replayed run. Backward is told by its work, which nothing
    slowed, the rest as it was."""

    def __init__(self, timeline: Timeline, own: StepParts, following: StepParts | None) -> None:
        graph, start_ns, end_ns = timeline.graph, timeline.start_ns, timeline.end_ns

        def took_ns(ops: Sequence[int]) -> int:
            return int((end_ns[list(ops)] - start_ns[list(ops)]).sum())

        rows, gradients = own.rows, graph.gradients
        names = [graph.strings[int(name)] for name in gradients.name[rows].tolist()]
        self.sizes = dict(zip(names, gradients.size_bytes[rows].tolist(), strict=True))
        """Bytes by name of the gradient, in the order in which they come."""
        made_by = gradients.made_by[rows].tolist()
        worked = np.cumsum(graph.ops.work_ns[own.backward])
        place = {op: i for i, op in enumerate(own.backward)}
        self.backward_ns = int(worked[-1])
        self.release_ns = {
            name: int(worked[place[op]]) for name, op in zip(names, made_by, strict=True)
        }
        began_ns = int(start_ns[own.backward[0]])
        self.seen_release_ns = {
            name: int(end_ns[op]) - began_ns for name, op in zip(names, made_by, strict=True)
        }
        self.forward_ns = (
            int(end_ns[own.forward[-1]] - start_ns[own.forward[0]]) if own.forward else 0
        )
        # Where recording goes on elsewhere, what this step began with stands for the next one's.
        self.between_ns = took_ns(own.rest) + took_ns((following or own).before)
        self.copy_ns, self.update_ns = took_ns(own.copies), took_ns(own.updates)
