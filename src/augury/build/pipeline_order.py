"""Which micro-batch a pipeline stage works on when."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from itertools import pairwise
from typing import NamedTuple


class PipelineSchedule(StrEnum):
    GPIPE = "gpipe"
    """All forward, then all backward."""
    ONE_F_ONE_B = "1f1b"
    """Backward as soon as possible: fewer activations are held at a time. In one stage it is
    plain gradient accumulation."""


class StageTask(NamedTuple):
    is_forward: bool
    micro_batch: int


def stage_tasks(
    schedule: PipelineSchedule, *, stage: int, num_stages: int, num_micro_batches: int
) -> list[StageTask]:
    """What one stage does, in order."""
    ahead = num_micro_batches
    if schedule is PipelineSchedule.ONE_F_ONE_B:
        ahead = min(num_stages - stage, num_micro_batches)
    tasks = [StageTask(True, m) for m in range(ahead)]
    for m in range(num_micro_batches):
        tasks.append(StageTask(False, m))
        if m + ahead < num_micro_batches:
            tasks.append(StageTask(True, m + ahead))
    return tasks


def cut_stages(times_ns: Sequence[int], num_stages: int) -> list[range]:
    """Consecutive layers, at least one each; every cut is where the time so far comes nearest
    to the stage's share."""
    num_layers, total = len(times_ns), sum(times_ns)
    sums = [0]
    for time_ns in times_ns:
        sums.append(sums[-1] + time_ns)
    cuts = [0]
    for stage in range(1, num_stages):
        low, high = cuts[-1] + 1, num_layers - (num_stages - stage)
        target = total * stage / num_stages
        cuts.append(min((abs(sums[cut] - target), cut) for cut in range(low, high + 1))[1])
    cuts.append(num_layers)
    return [range(low, high) for low, high in pairwise(cuts)]
