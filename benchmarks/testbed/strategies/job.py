"""A rank of the job that measures the steps of strategies and the inputs of their predictions.

Every round times single communications, layers as each strategy splits them (on all ranks at once,
without communication), and real steps of every strategy: all interleaved in the same processes.
Rank 0 writes the raw times.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from time import perf_counter_ns
from typing import Any

import torch
import torch.distributed as dist

from benchmarks.testbed.strategies.cnns import CNNS, Cnn
from benchmarks.testbed.strategies.data import serial
from benchmarks.testbed.strategies.equal import differences
from benchmarks.testbed.strategies.fsdp import Sharded
from benchmarks.testbed.strategies.groups import Mesh
from benchmarks.testbed.strategies.known import all_strategies, programs
from benchmarks.testbed.strategies.links import Links, Message, messages
from benchmarks.testbed.strategies.program import Parallel, Program
from benchmarks.testbed.strategies.timed import LayerTimes, time_layers, time_sharded

WARM_UP = 1
STEPS = 2
"""Steps of a strategy per round: few, since the load of the machine changes within seconds."""


class Job:
    def __init__(self, cnn: Cnn) -> None:
        rank, size = dist.get_rank(), dist.get_world_size()
        mesh = Mesh.of_world()
        self._alone: dict[str, Program | Sharded] = {
            name: make(cnn, Mesh.alone(rank, size)) for name, make in programs(size).items()
        }
        self._alone["pipeline"] = serial(cnn, cnn.batch // cnn.micro_batches)
        self._alone["zero3"] = Sharded(cnn, is_alone=True)
        self.first_layers = self._stages(size)
        self._strategies = all_strategies(cnn, mesh, self.first_layers)
        self.differences = differences(cnn, mesh, self.first_layers)
        self._links, self._messages = Links(mesh), messages(cnn, size)
        self.forget()

    def forget(self) -> None:
        """Drops the times of the warm-up."""
        self.layer_times = {name: LayerTimes() for name in self._alone}
        self.link_times: dict[Message, list[float]] = {one: [] for one in self._messages}
        self.steps: dict[str, list[list[int]]] = {one.name: [] for one in self._strategies}

    def round(self, is_odd: bool) -> None:
        for message in self._messages:
            self.link_times[message] += self._links.times_s(message)
        data, *others = self._strategies
        for strategy in others[::-1] if is_odd else others:
            # Data parallelism must be predicted best: it is measured next to every other strategy.
            for one in (data, strategy):
                self._time_alone(one.name)
                self.steps[one.name].append(_steps(one))

    def _time_alone(self, name: str) -> None:
        """Times layers on all ranks at once, as in a step. Pipeline stages that share a core mostly
        alternate, so there the ranks alternate too."""
        program = self._alone[name]
        rank, cores = dist.get_rank(), os.cpu_count() or 1
        turns = (
            range(-(-dist.get_world_size() // cores)) if name == "pipeline" else (rank // cores,)
        )
        for turn in turns:
            for times in (LayerTimes(), self.layer_times[name]):
                dist.barrier()
                if turn != rank // cores:
                    continue
                if isinstance(program, Sharded):
                    time_sharded(program, times)
                else:
                    time_layers(program, times)

    def _stages(self, num: int) -> list[int]:
        """Cuts stages by rank 0's layer times such that the slowest stage is as fast as
        possible."""
        times = LayerTimes()
        program = self._alone["pipeline"]
        assert isinstance(program, Program)
        for _ in range(4):
            time_layers(program, times)
        both = zip(
            zip(*times.forward_s, strict=True), zip(*times.backward_s, strict=True), strict=True
        )
        seconds = [median(forward) + median(backward) for forward, backward in both]
        cuts = itertools.combinations(range(1, len(seconds)), num - 1)
        told = [[0, *min(cuts, key=lambda cut: _slowest(seconds, cut))]]
        dist.broadcast_object_list(told)
        return told[0]


def _slowest(seconds: Sequence[float], cuts: Sequence[int]) -> float:
    edges = [0, *cuts, len(seconds)]
    return max(sum(seconds[a:b]) for a, b in itertools.pairwise(edges))


def _steps(strategy: Parallel) -> list[int]:
    for _ in range(WARM_UP):
        strategy.step()
    stamps = [perf_counter_ns()]
    for _ in range(STEPS):
        strategy.step()
        stamps.append(perf_counter_ns())
    return [end - begin for begin, end in itertools.pairwise(stamps)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cnn", choices=tuple(CNNS), required=True)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    job = Job(CNNS[options.cnn])
    job.round(is_odd=True)
    job.forget()
    for index in range(options.rounds):
        job.round(is_odd=bool(index % 2))
    of_ranks: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(of_ranks, {name: asdict(one) for name, one in job.layer_times.items()})
    if dist.get_rank() == 0:
        document = {
            "cnn": options.cnn,
            "num_ranks": len(of_ranks),
            "cores": os.cpu_count(),
            "first_layers": job.first_layers,
            "differences": job.differences,
            "links": [
                asdict(message) | {"times_s": times} for message, times in job.link_times.items()
            ],
            "layers": of_ranks,
            "steps_ns": job.steps,
        }
        options.out.write_text(json.dumps(document))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
