"""Kineto traces of generated jobs on devices, whose collectives and clocks are known.

A small simulation runs the job: each rank launches kernels, streams run them in order, and a
collective ends on all its ranks when the data of the last one has arrived. A kernel's name ends
with the number of its collective, so that tests know which ones belong together.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Event = dict[str, Any]
Files = dict[int, dict[str, Any]]

_COMPUTE, _COMMUNICATION = 7, 20
_LAUNCH_US = 8.0
BASE_US = 1_700_000_000_000_000.0


@dataclass(frozen=True)
class Job:
    """Each layer computes, then communicates in one of the groups of its rank, in turn. A blocking
    collective delays the next layer; the others end before the step does."""

    num_ranks: int = 4
    num_steps: int = 4
    num_layers: int = 6
    layer_us: float = 2_000.0
    imbalance: float = 0.4
    """Largest relative difference of compute between ranks and steps."""
    transfer_us: float = 400.0
    groups: Callable[[int], list[tuple[int, ...]]] | None = None
    """Groups of a rank, of which a layer uses the next one; all ranks where None."""
    is_blocking: bool = True
    jitter_us: float = 8.0
    """Largest difference of the ends of one collective between two ranks."""
    has_sizes: bool = True
    has_numbers: bool = False
    """Whether the trace has sequence numbers and ranks of groups."""
    clocks: dict[int, tuple[float, float]] = field(default_factory=dict)
    """Offset in microseconds and drift in parts per million, by rank."""
    hosts: dict[int, str] = field(default_factory=dict)
    pipeline: bool = False
    """Ranks hand on their activations: a send and a receive per layer instead of collectives."""
    has_phases: bool = False
    """Whether ranges of the program say that the first half of the layers is forward and the rest
    backward."""
    loading_us: float = 0.0
    """Time that each step loads data before it launches anything."""
    loader: str = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
    """Name of the range around loading; empty for a loader that the profiler does not know."""
    seed: int = 1

    def members(self, rank: int, layer: int) -> tuple[int, ...]:
        everyone = tuple(range(self.num_ranks))
        own = [everyone] if self.groups is None else self.groups(rank)
        return own[layer % len(own)]

    def files(self) -> Files:
        return _Simulation(self).files()


@dataclass
class _Rank:
    host_us: float = BASE_US
    compute_us: float = BASE_US
    communication_us: float = BASE_US
    correlation: int = 0
    events: list[Event] = field(default_factory=list)
    numbers: dict[tuple[int, ...], int] = field(default_factory=dict)


class _Simulation:
    def __init__(self, job: Job) -> None:
        self._job = job
        self._chance = random.Random(job.seed)
        self._ranks = [_Rank() for _ in range(job.num_ranks)]
        self._num_transfers = 0

    def files(self) -> Files:
        job = self._job
        for step in range(job.num_steps):
            begins = [rank.host_us for rank in self._ranks]
            for rank in self._ranks:
                self._load(rank)
            for layer in range(job.num_layers):
                self._layer(layer)
            for number, rank in enumerate(self._ranks):
                end = max(rank.host_us, rank.compute_us, rank.communication_us)
                self._host(rank, "cudaDeviceSynchronize", rank.host_us, end, "cuda_runtime")
                rank.host_us = end + 5
                name = f"ProfilerStep#{10 + step}"
                self._host(rank, name, begins[number], rank.host_us, "user_annotation")
        return {number: self._file(number, rank) for number, rank in enumerate(self._ranks)}

    def _load(self, rank: _Rank) -> None:
        job = self._job
        begin = rank.host_us
        rank.host_us += job.loading_us
        if job.loading_us and job.loader:
            self._host(rank, job.loader, begin, rank.host_us, "user_annotation")

    def _layer(self, layer: int) -> None:
        job = self._job
        for rank in self._ranks:
            dur = job.layer_us * (1 + self._chance.uniform(0, job.imbalance))
            phase = "## forward ##" if 2 * layer < job.num_layers else "## backward ##"
            launched = self._launch(rank, "cudaLaunchKernel", phase if job.has_phases else "")
            start = max(rank.compute_us + 1, launched)
            rank.compute_us = start + dur
            self._kernel(rank, f"gemm_{layer}", _COMPUTE, start, start + dur)
        if job.pipeline:
            self._messages(layer)
            return
        done: set[tuple[int, ...]] = set()
        for number in range(job.num_ranks):
            members = job.members(number, layer)
            if members not in done:
                done.add(members)
                self._collective(members, 1_000 * (1 + layer % 3))

    def _collective(self, members: tuple[int, ...], elements: int) -> None:
        job = self._job
        self._num_transfers += 1
        starts, launches = {}, {}
        for number in members:
            rank = self._ranks[number]
            args = self._args("allreduce", members, elements, rank)
            launches[number] = self._launch(rank, "cudaLaunchKernel", "nccl:all_reduce", args), args
            starts[number] = max(
                launches[number][0], rank.compute_us + 3, rank.communication_us + 1
            )
        end = max(starts.values()) + job.transfer_us * (1 + elements / 10_000)
        for number in members:
            rank = self._ranks[number]
            own_end = end + self._chance.uniform(0, job.jitter_us)
            name = f"ncclDevKernel_AllReduce_Sum_f32_RING_LL(#{self._num_transfers})"
            self._kernel(rank, name, _COMMUNICATION, starts[number], own_end, launches[number][1])
            rank.communication_us = own_end
            if job.is_blocking:
                rank.compute_us = max(rank.compute_us, own_end + 2)

    def _messages(self, layer: int) -> None:
        members = tuple(range(self._job.num_ranks))
        for number in range(self._job.num_ranks - 1):
            ends = (
                (self._ranks[number], "send", f"nccl:send {number}->{number + 1}"),
                (
                    self._ranks[number + 1],
                    "recv",
                    f"nccl:recv {number + 1}<-{number}",
                ),
            )
            self._num_transfers += 1
            starts, args_of = [], []
            for rank, kind, name in ends:
                args = self._args(kind, members, 500 * (1 + layer), rank)
                launched = self._launch(rank, "cudaLaunchKernel", name, args)
                starts.append(max(launched, rank.compute_us + 3, rank.communication_us + 1))
                args_of.append(args)
            end = max(starts) + self._job.transfer_us
            for (rank, _, _), start, args in zip(ends, starts, args_of, strict=True):
                name = f"ncclDevKernel_SendRecv(#{self._num_transfers})"
                self._kernel(rank, name, _COMMUNICATION, start, end, args)
                rank.communication_us = end
                rank.compute_us = max(rank.compute_us, end + 2)

    def _args(
        self, name: str, members: tuple[int, ...], elements: int, rank: _Rank
    ) -> dict[str, Any]:
        args: dict[str, Any] = {"Collective name": name}
        if self._job.has_sizes:
            args |= {"In msg nelems": elements, "Out msg nelems": elements, "dtype": "Float"}
        if self._job.has_numbers or self._job.groups is not None or self._job.pipeline:
            args |= {"Process Group Ranks": str(list(members)), "Process Group Name": str(members)}
        if self._job.has_numbers:
            rank.numbers[members] = rank.numbers.get(members, 100) + 1
            args["Seq"] = rank.numbers[members]
        return args

    def _launch(
        self, rank: _Rank, call: str, around: str = "", args: dict[str, Any] | None = None
    ) -> float:
        rank.correlation += 1
        start = rank.host_us
        if around:
            self._host(rank, around, start, start + _LAUNCH_US + 4, "user_annotation", args)
            start += 2
        shared = {"correlation": rank.correlation}
        self._host(rank, call, start, start + _LAUNCH_US, "cuda_runtime", shared)
        rank.host_us = start + _LAUNCH_US + 4
        return start + _LAUNCH_US

    def _host(
        self,
        rank: _Rank,
        name: str,
        start: float,
        end: float,
        category: str,
        args: dict[str, Any] | None = None,
    ) -> None:
        rank.events.append(
            {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": 1}
            | {"ts": start, "dur": end - start, "args": dict(args or {})}
        )

    def _kernel(
        self,
        rank: _Rank,
        name: str,
        stream: int,
        start: float,
        end: float,
        args: dict[str, Any] | None = None,
    ) -> None:
        own = {"correlation": rank.correlation, "stream": stream, "device": 0} | (args or {})
        rank.events.append(
            {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": stream}
            | {"ts": start, "dur": end - start, "args": own}
        )

    def _file(self, number: int, rank: _Rank) -> dict[str, Any]:
        offset, drift = self._job.clocks.get(number, (0.0, 0.0))
        for event in rank.events:
            event["ts"] = event["ts"] + offset + (event["ts"] - BASE_US) * drift / 1e6
        info = {"backend": "nccl", "rank": number, "world_size": self._job.num_ranks}
        content: dict[str, Any] = {"distributedInfo": info, "traceEvents": rank.events}
        if number in self._job.hosts:
            content["host_name"] = self._job.hosts[number]
        return content
