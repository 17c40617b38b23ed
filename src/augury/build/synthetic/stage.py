"""Stages of a synthetic pipeline; plain data parallelism is a pipeline of one stage."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from augury.build.collectives.algorithms import find_algorithm
from augury.build.collectives.parameter_server import Servers, push_pull
from augury.build.collectives.placement import place
from augury.build.collectives.ports import Ports
from augury.build.collectives.scheme import Collective
from augury.build.pipeline_order import cut_stages
from augury.build.synthetic.job import SyntheticJob
from augury.build.synthetic.layers import Layer
from augury.core.enums import MemoryKind, OpKind
from augury.core.graph.builder import GraphBuilder
from augury.core.graph.graph import NONE
from augury.schedule.order_parts import fill_buckets

PerReplica = list[list[int]]
"""Lists of operations, one for each replica of a stage."""


@dataclass(frozen=True, kw_only=True)
class LayerBucket:
    """Gradients of consecutive layers, and the collective that reduces them."""

    layers: range
    size_bytes: int
    collective: Collective
    priority: int


@dataclass(frozen=True, kw_only=True)
class Stage:
    """Consecutive layers, and the data-parallel group of replicas that hold them."""

    layers: range
    ports: Ports
    streams: tuple[int, ...]
    buckets: tuple[LayerBucket, ...]
    """In the order in which backward completes them."""

    def hold(
        self,
        builder: GraphBuilder,
        layer: Layer,
        kind: MemoryKind,
        size_bytes: int,
        *,
        taken_by: Sequence[int] = (),
        given_by: Sequence[int] = (),
    ) -> None:
        """Adds memory on each replica; without operations it is held all the time."""
        unbound = [NONE] * len(self.ports)
        for port, taken, given in zip(
            self.ports.members, taken_by or unbound, given_by or unbound, strict=True
        ):
            builder.buffer(
                size_bytes,
                rank=port.rank,
                kind=kind,
                taken_by=taken,
                given_by=given,
                layer=layer.name,
            )


def make_stages(
    job: SyntheticJob, ports: Ports, streams: Sequence[int], servers: Servers | None
) -> list[Stage]:
    collectives = _collectives(job, servers)
    times_ns = [layer.forward_ns + layer.backward_ns for layer in job.layers]
    stages = []
    for number, layers in enumerate(cut_stages(times_ns, job.num_stages)):
        ranks = range(number * job.num_replicas, (number + 1) * job.num_replicas)
        stages.append(
            Stage(
                layers=layers,
                ports=ports.group(ranks),
                streams=tuple(streams[rank] for rank in ranks),
                buckets=tuple(_make_buckets(job, layers, collectives)),
            )
        )
    return stages


def _collectives(job: SyntheticJob, servers: Servers | None) -> list[Collective]:
    """Collective that reduces the bucket that begins with each layer."""
    if servers is None:
        return [find_algorithm(OpKind.ALL_REDUCE, job.algorithm).collective] * len(job.layers)
    homes = place(
        [layer.parameter_bytes for layer in job.layers],
        num_servers=len(servers),
        partition_bytes=servers.partition_bytes,
        placement=job.placement,
    )
    return [partial(push_pull, servers=servers, home=home) for home in homes]


def _make_buckets(
    job: SyntheticJob, layers: range, collectives: Sequence[Collective]
) -> Iterator[LayerBucket]:
    """Parameter servers get each tensor by itself, in partitions, so that fusion gains nothing."""
    sizes_bytes = [job.layers[i].parameter_bytes for i in layers]
    cap_bytes = 0 if job.uses_servers else job.bucket_bytes
    # The gradient of the last layer is released first.
    for bucket in fill_buckets(sizes_bytes[::-1], [cap_bytes]):
        positions = range(len(layers) - 1 - bucket[-1], len(layers) - bucket[0])
        inside = layers[positions.start : positions.stop]
        yield LayerBucket(
            layers=inside,
            size_bytes=sum(sizes_bytes[p] for p in positions),
            collective=collectives[inside.start],
            priority=inside.start if job.urgent_first else 0,
        )
