"""Ranks, streams, ports, servers and noise of a synthetic training run."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from augury.build.collectives.parameter_server import Servers, open_servers
from augury.build.collectives.ports import Port, open_ports
from augury.build.synthetic.job import SyntheticJob
from augury.build.synthetic.layers import Layer
from augury.build.synthetic.stage import PerReplica, Stage, make_stages
from augury.core.enums import MemoryKind, OpKind, ResourceKind, Role
from augury.core.graph.builder import GraphBuilder


class World:
    """The graph of a synthetic run under construction, with the ranks, resources and stages that
    its steps use."""

    def __init__(self, job: SyntheticJob) -> None:
        self.job = job
        self.builder = GraphBuilder(meta=_meta(job))
        cluster = job.cluster
        ranks = [
            self.builder.rank(host=f"host{cluster.host_of(rank)}")
            for rank in range(cluster.num_devices)
        ]
        ports = open_ports(self.builder, cluster, ranks, kind=job.ports)
        streams = [
            self.builder.resource("compute", rank=rank, kind=ResourceKind.COMPUTE) for rank in ranks
        ]
        servers = self._open_servers() if job.uses_servers else None
        self.stages = make_stages(job, ports, streams, servers)
        if job.compute_rate < 1:
            for port, stream in zip(ports.members, streams, strict=True):
                self._add_interference(port, stream)
        self._add_model_memory()
        self._slowdown = [1.0] * cluster.num_devices
        for rank, factor in job.stragglers:
            self._slowdown[rank] *= factor
        self._noise_factors = _noise_factors(job.jitter, job.seed)

    def compute(
        self,
        stage: Stage,
        layer: Layer,
        kind: OpKind,
        *,
        name: str,
        work_ns: int,
        waits: PerReplica,
        step: int,
    ) -> list[int]:
        """Adds one operation on each replica of a stage, after the operations that ``waits`` lists
        for the replica. ``work_ns`` is the work before the factors of stragglers and noise."""
        return [
            self.builder.op(
                name,
                kind=kind,
                rank=port.rank,
                resource=stream,
                work_ns=round(work_ns * self._slowdown[port.rank] * next(self._noise_factors)),
                after=after,
                layer=layer.name,
                step=step,
            )
            for port, stream, after in zip(stage.ports.members, stage.streams, waits, strict=True)
        ]

    def _open_servers(self) -> Servers:
        job = self.job
        servers = range(job.num_servers)
        ranks = [self.builder.rank(role=Role.SERVER, host=f"server{n}") for n in servers]
        hosts = [job.cluster.num_hosts + n for n in servers]
        ports = open_ports(self.builder, job.cluster, ranks, kind=job.ports, hosts=hosts)
        return open_servers(self.builder, ports, partition_bytes=job.partition_bytes)

    def _add_interference(self, port: Port, stream: int) -> None:
        """Slows a rank's compute while the rank sends. Receiving adds no interference of its own,
        because a rank that sends and receives at once is slowed only once."""
        job = self.job
        aggressors = []
        if job.uses_gangs and job.num_replicas > 1:
            aggressors.append(port.stream)
        if not job.uses_gangs or job.num_stages > 1:
            aggressors.append(port.sends_on)
        for aggressor in aggressors:
            self.builder.interfere(victim=stream, aggressor=aggressor, rate=job.compute_rate)

    def _add_model_memory(self) -> None:
        """Adds the memory of parameters, and of optimizer state unless servers hold it."""
        job = self.job
        for stage in self.stages:
            for i in stage.layers:
                layer = job.layers[i]
                stage.hold(self.builder, layer, MemoryKind.PARAMETER, layer.parameter_bytes)
                state_bytes = layer.parameter_bytes * job.optimizer_bytes_per_parameter_byte
                if state_bytes and not job.uses_servers:
                    stage.hold(self.builder, layer, MemoryKind.OPTIMIZER, state_bytes)


def _noise_factors(sigma: float, seed: int) -> Iterator[float]:
    """Yields log-normal factors with mean 1. Without jitter, all factors are exactly 1."""
    if sigma == 0:
        while True:
            yield 1.0
    rng = np.random.default_rng(seed)
    while True:
        yield from rng.lognormal(-sigma * sigma / 2, sigma, 4096).tolist()


def _meta(job: SyntheticJob) -> dict[str, str]:
    return {
        "source": "synthetic",
        "algorithm": job.algorithm,
        "ports": job.ports.value,
        "seed": str(job.seed),
    }
