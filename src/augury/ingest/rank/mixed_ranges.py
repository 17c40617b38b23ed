"""Phases that events of a Kineto trace state by their names, and ranges that contain several.

An optimizer may run forward and backward itself, in a closure, so that its range contains a whole
step. A program may open a range of its own around a step. A forward of DistributedDataParallel may
be one of evaluation, which is no part of training.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from augury.core.columns import I8, U1
from augury.core.enums import Phase
from augury.core.vocabulary.torch import CLOSURE_RANGE, EVALUATION_RANGE, OPTIMIZER_STEP
from augury.ingest.ancestors import UNSTATED, inherit
from augury.ingest.formats.kineto import KinetoTrace
from augury.ingest.vocabulary.torch import (
    DDP_FORWARD,
    PROFILER_STEP,
    annotated_phase,
    is_backward_node,
)

MAX_LEVELS = 16
"""Most mixed ranges within each other; events in deeper ones have the phase around them."""


def phases_of_names(trace: KinetoTrace) -> U1:
    """Returns the phase that each event states by itself; UNSTATED if it has that of its place."""
    phase_of_name = np.array([_stated_phase(name) for name in trace.name.strings], dtype=np.uint8)
    stated: U1 = phase_of_name[trace.name.number]
    stated[trace.forward_thread != 0] = Phase.BACKWARD  # nodes with names of their own too
    parents = trace.parent[trace.name.where(lambda name: name.startswith(EVALUATION_RANGE))]
    is_model = trace.name.where(lambda name: name.startswith(DDP_FORWARD))
    stated[parents[(parents >= 0) & is_model[parents]]] = Phase.NONE
    return stated


def _stated_phase(name: str) -> int:
    stated = Phase.BACKWARD if is_backward_node(name) else annotated_phase(name)
    return UNSTATED if stated is None else stated


def mixed_ranges(trace: KinetoTrace, stated: U1) -> list[I8]:
    """Returns the rows of recorded closures, and of unnamed ranges and optimizer steps that contain
    forward or backward: first those within no other one, then those within one, and so on. An
    optimizer step around a recorded closure is not one of them."""
    is_closure = trace.name.where(CLOSURE_RANGE.__eq__)
    is_update = trace.name.where(lambda name: name.startswith(OPTIMIZER_STEP))
    is_open = trace.category.where("user_annotation".__eq__) & (stated == UNSTATED)
    is_open &= ~trace.name.where(lambda name: name.startswith(PROFILER_STEP))
    is_open |= is_closure | is_update
    if not is_open.any():
        return []
    own = np.where(is_open, np.arange(len(trace)), -1).astype(np.int32)
    innermost = inherit(trace.parent, ~is_open, own)
    above = np.where(trace.parent >= 0, innermost[trace.parent], -1)
    is_training = (stated == Phase.FORWARD) | (stated == Phase.BACKWARD)
    within = above[is_training]
    found = {*np.flatnonzero(is_closure).tolist(), *np.unique(within[within >= 0]).tolist()}
    outer_of: dict[int, int] = {}
    waiting = list(found)
    while waiting:
        row = waiting.pop()
        outer = int(above[row])
        if outer >= 0 and is_update[outer] and outer not in found:
            outer = int(above[outer])
        outer_of[row] = outer
        if outer >= 0 and outer not in found:
            found.add(outer)
            waiting.append(outer)
    levels: dict[int, list[int]] = defaultdict(list)
    level_of = {-1: -1}
    for row in sorted(found):  # outer ranges come first
        level_of[row] = level_of[outer_of[row]] + 1
        levels[level_of[row]].append(row)
    return [
        np.array(levels[level], dtype=np.int64) for level in range(min(len(levels), MAX_LEVELS))
    ]
