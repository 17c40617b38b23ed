"""Order of micro-batches on the stages of a pipeline: GPipe, 1F1B and interleaved 1F1B."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from itertools import pairwise
from typing import NamedTuple


class PipelineSchedule(StrEnum):
    GPIPE = "gpipe"
    """All forward passes, then all backward passes."""
    ONE_F_ONE_B = "1f1b"
    """Backward as soon as possible, which holds fewer activations at a time. With one stage it is
    plain gradient accumulation."""
    INTERLEAVED = "interleaved"
    """1F1B with several chunks of layers per device."""


class StageTask(NamedTuple):
    """Forward or backward of one micro-batch through one chunk of a device's layers."""

    is_forward: bool
    micro_batch: int
    chunk: int = 0
    """Index among the chunks of the device; 0 unless interleaved."""


def stage_tasks(
    schedule: PipelineSchedule,
    *,
    stage: int,
    num_stages: int,
    num_micro_batches: int,
    num_chunks: int = 1,
) -> list[StageTask]:
    """Returns the tasks of one stage (of one device, when interleaved) in order.

    GPipe runs all forward passes first. The others run one backward after each forward once
    enough forward passes are ahead to fill the pipeline behind this stage.
    """
    rounds = [range(num_micro_batches)]
    if num_chunks > 1:
        rounds = _rounds(num_stages, num_micro_batches)
    forward = [
        StageTask(True, m, chunk) for some in rounds for chunk in range(num_chunks) for m in some
    ]
    backward = [
        StageTask(False, m, chunk)
        for some in rounds
        for chunk in reversed(range(num_chunks))
        for m in some
    ]
    ahead = len(forward)
    if schedule != PipelineSchedule.GPIPE:
        behind = num_stages - 1 - stage
        if num_chunks > 1:
            behind = 2 * behind + (num_chunks - 1) * max(map(len, rounds))
        ahead = min(behind + 1, len(forward))
    tasks = forward[:ahead]
    for index, task in enumerate(backward):
        tasks.append(task)
        tasks += forward[ahead + index : ahead + index + 1]
    return tasks


def _rounds(num_stages: int, num_micro_batches: int) -> list[range]:
    """Micro-batches that pass one chunk before the next chunk starts: at least as many as stages
    where possible, because with fewer the stages would wait for each other in a cycle."""
    number = max(1, num_micro_batches // num_stages)
    edges = [num_micro_batches * index // number for index in range(number + 1)]
    return [range(low, high) for low, high in pairwise(edges)]


def cut_stages(times_ns: Sequence[int], num_stages: int) -> list[range]:
    """Cuts layers into stages of at least one layer; each cut is where the accumulated time is
    nearest to the stage's share."""
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
