"""Recognizes pipelines: forward and backward that wait for messages of other ranks."""

from __future__ import annotations

import numpy as np

from augury.core.enums import OpKind
from augury.core.graph.graph import NONE, Graph

_MESSAGES = (OpKind.SEND, OpKind.RECV)
_BETWEEN = (OpKind.DELAY, OpKind.MARK, OpKind.OTHER, OpKind.UNEXPLAINED, OpKind.SYNC)
"""Operations that may lie between the arrival of a message and the compute that needs it."""
_MOST_BETWEEN = 6


def has_pipeline(graph: Graph) -> bool:
    """Rings that reduce gradients also consist of messages; updates wait for those, or the forward
    of the next step."""
    ops = graph.ops
    if graph.num_ranks < 2 or len(graph.gradients):
        return False
    src, dst = graph.edges.sources(), graph.edges.dst
    within = (ops.step[src] == ops.step[dst]) & (ops.step[src] >= 0)
    src, dst = src[within], dst[within]
    is_between = np.isin(ops.kind, (*_BETWEEN, *_MESSAGES))
    # A device's kernel has an operation for its start, which runs on no resource.
    is_between |= (ops.kind == OpKind.LAUNCH) & (ops.resource == NONE)
    reached = np.isin(ops.kind, _MESSAGES)
    if not reached.any():
        return False
    for _ in range(_MOST_BETWEEN):
        nearer = dst[reached[src] & is_between[dst]]
        if reached[nearer].all():
            break
        reached[nearer] = True
    is_model = np.isin(ops.kind, [OpKind.FORWARD, OpKind.BACKWARD])
    return bool((reached[src] & is_model[dst]).any())
