"""Communication as if it were hidden: nothing waits for it."""

from __future__ import annotations

import numpy as np

from augury.core.enums import are_communication
from augury.core.graph.graph import Edges, Graph


def perfect_overlap(graph: Graph) -> Graph:
    """No compute waits for communication, which still takes its time: a step is then as long as
    the longer of the two."""
    is_communication = are_communication(graph.ops.kind)
    src, dst = graph.edges.sources(), graph.edges.dst
    keep = ~(is_communication[src] & ~is_communication[dst])
    carries = graph.carries
    stays = ~(is_communication[carries.src] & ~is_communication[carries.dst])
    return graph.evolve(
        edges=Edges.from_pairs(src[keep], dst[keep], num_ops=graph.num_ops),
        carries=type(carries)(src=carries.src[stays], dst=carries.dst[stays]),
        gradients=graph.gradients.empty() if np.any(~keep) else graph.gradients,
    )
