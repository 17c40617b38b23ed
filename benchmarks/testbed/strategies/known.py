"""All strategies by their names in the oracle."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from benchmarks.testbed.strategies.channel import channel_parallel
from benchmarks.testbed.strategies.cnns import Cnn
from benchmarks.testbed.strategies.data import data
from benchmarks.testbed.strategies.data_filter import data_filter
from benchmarks.testbed.strategies.data_spatial import data_spatial
from benchmarks.testbed.strategies.filter import filter_parallel
from benchmarks.testbed.strategies.fsdp import Sharded
from benchmarks.testbed.strategies.groups import Mesh
from benchmarks.testbed.strategies.pipeline import Pipeline
from benchmarks.testbed.strategies.program import Parallel, Program
from benchmarks.testbed.strategies.spatial import spatial

PROGRAMS: dict[str, Callable[[Cnn, Mesh], Program]] = {
    "data": data,
    "spatial": spatial,
    "filter": filter_parallel,
    "channel": channel_parallel,
}
HYBRIDS: dict[str, Callable[[Cnn, Mesh], Program]] = {
    "data_filter": data_filter,
    "data_spatial": data_spatial,
}
"""Strategies of pairs, which need four ranks."""


def programs(num_ranks: int) -> dict[str, Callable[[Cnn, Mesh], Program]]:
    return PROGRAMS | (HYBRIDS if num_ranks >= 4 else {})


def all_strategies(cnn: Cnn, mesh: Mesh, first_layers: Sequence[int]) -> list[Parallel]:
    return [
        *(make(cnn, mesh) for make in programs(mesh.world.size).values()),
        Pipeline(cnn, first_layers),
        Sharded(cnn),
    ]
