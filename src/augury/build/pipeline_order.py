"""Order of micro-batches on the stages of a pipeline: GPipe, 1F1B and interleaved 1F1B."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from itertools import accumulate, pairwise
from typing import NamedTuple


class PipelineSchedule(StrEnum):
    GPIPE = "gpipe"
    """All forward passes, then all backward passes."""
    ONE_F_ONE_B = "1f1b"
    """Forward and backward alternate after a warm-up, so that a stage holds the activations of few
    micro-batches at a time. With one stage it is plain gradient accumulation."""
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

    GPipe runs all forward passes first. The others first run as many forward passes as it takes to
    fill the stages after this one, and then alternate between one backward and one forward.
    """
    rounds = [range(num_micro_batches)]
    if num_chunks > 1:
        rounds = _rounds(num_stages, num_micro_batches)
    forward = [
        StageTask(True, micro_batch, chunk)
        for micro_batches in rounds
        for chunk in range(num_chunks)
        for micro_batch in micro_batches
    ]
    backward = [
        StageTask(False, micro_batch, chunk)
        for micro_batches in rounds
        for chunk in reversed(range(num_chunks))
        for micro_batch in micro_batches
    ]
    num_before_backward = len(forward)
    if schedule != PipelineSchedule.GPIPE:
        num_warmup = num_stages - 1 - stage
        if num_chunks > 1:
            num_warmup = 2 * num_warmup + (num_chunks - 1) * max(map(len, rounds))
        num_before_backward = min(num_warmup + 1, len(forward))
    tasks = forward[:num_before_backward]
    left = forward[num_before_backward:]
    for index, task in enumerate(backward):
        tasks.append(task)
        tasks += left[index : index + 1]  # empty once all forward passes have run
    return tasks


def _rounds(num_stages: int, num_micro_batches: int) -> list[range]:
    """Returns rounds of micro-batches: all of a round pass one chunk before the next chunk starts.
    A round has at least as many micro-batches as there are stages, where possible; with fewer, the
    stages would wait for each other in a cycle."""
    num_rounds = max(1, num_micro_batches // num_stages)
    edges = [num_micro_batches * index // num_rounds for index in range(num_rounds + 1)]
    return [range(low, high) for low, high in pairwise(edges)]


def cut_stages(times_ns: Sequence[int], num_stages: int) -> list[range]:
    """Cuts layers into stages of at least one layer. Each cut is where the accumulated time is
    nearest to that of equally long stages."""
    num_layers, total_ns = len(times_ns), sum(times_ns)
    accumulated_ns = [0, *accumulate(times_ns)]
    cuts = [0]
    for stage in range(1, num_stages):
        low, high = cuts[-1] + 1, num_layers - (num_stages - stage)
        target_ns = total_ns * stage / num_stages
        distances = [(abs(accumulated_ns[cut] - target_ns), cut) for cut in range(low, high + 1)]
        cuts.append(min(distances)[1])
    cuts.append(num_layers)
    return [range(low, high) for low, high in pairwise(cuts)]
