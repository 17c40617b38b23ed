"""What a device of a pipeline works on, in order."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

from augury.oracle.strategy import Schedule


class PipelineTask(NamedTuple):
    is_forward: bool
    chunk: int
    """Of the device: its first, its second, ..."""
    micro_batch: int


def tasks_of(
    schedule: Schedule, *, device: int, devices: int, micro_batches: int, chunks: int
) -> list[PipelineTask]:
    """GPipe: all forward, then all backward. Else a backward after each forward, once as many
    forward as it takes to fill the pipeline behind this device are ahead."""
    rounds = _rounds(devices, micro_batches) if chunks > 1 else [range(micro_batches)]
    forward = [
        PipelineTask(True, chunk, m) for some in rounds for chunk in range(chunks) for m in some
    ]
    backward = [
        PipelineTask(False, chunk, m)
        for some in rounds
        for chunk in reversed(range(chunks))
        for m in some
    ]
    ahead = len(forward)
    if schedule != "gpipe":
        behind = devices - 1 - device
        if chunks > 1:
            behind = 2 * behind + (chunks - 1) * max(map(len, rounds))
        ahead = min(behind + 1, len(forward))
    tasks = forward[:ahead]
    for place, one in enumerate(backward):
        tasks.append(one)
        tasks += forward[ahead + place : ahead + place + 1]
    return tasks


def _rounds(devices: int, micro_batches: int) -> list[range]:
    """Micro-batches that go through a chunk before the next chunk's turn: at least as many as
    devices, where there are, since with fewer devices would wait for each other in a circle."""
    number = max(1, micro_batches // devices)
    edges = [micro_batches * place // number for place in range(number + 1)]
    return [range(low, high) for low, high in pairwise(edges)]
