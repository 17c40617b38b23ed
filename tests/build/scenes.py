"""Small graphs with one communication, and questions about them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from augury.build.collectives.ports import PortKind, open_ports
from augury.build.collectives.scheme import Collective, CollectiveCall
from augury.core.cluster.cluster import Cluster, Link
from augury.core.enums import OpKind
from augury.core.graph.builder import GraphBuilder
from augury.core.graph.graph import Graph
from augury.replay.op_times import OpTimes
from augury.replay.reference import simulate

FAST = Link(latency_ns=100, bandwidth_bytes_per_s=1_000_000_000, overhead_ns=7)
SLOW = Link(latency_ns=900, bandwidth_bytes_per_s=250_000_000, overhead_ns=30)
SENDS = (OpKind.SEND, OpKind.PUSH)


def one_host(num_ranks: int, link: Link = FAST) -> Cluster:
    return Cluster.of_hosts(num_hosts=1, ranks_per_host=num_ranks, intra=link, inter=SLOW)


@dataclass(frozen=True)
class Played:
    graph: Graph
    inputs: list[int]
    results: list[int]

    def op_times(self) -> OpTimes:
        op_times = simulate(self.graph)
        assert op_times.is_complete
        return op_times

    def took_ns(self) -> int:
        """Time until every rank has the result, without the inputs' own time."""
        op_times = self.op_times()
        begin = op_times.end_ns[self.inputs].max()
        return int(op_times.end_ns[self.results].max() - begin)


def play(
    collective: Collective,
    cluster: Cluster,
    *,
    size_bytes: int,
    kind: PortKind = PortKind.FIFO,
    input_ns: Sequence[int] | None = None,
) -> Played:
    builder = GraphBuilder()
    ranks = [builder.rank() for _ in range(cluster.num_devices)]
    ports = open_ports(builder, cluster, ranks, kind=kind)
    inputs = [
        builder.op("input", rank=rank, work_ns=input_ns[rank] if input_ns else 5) for rank in ranks
    ]
    call = CollectiveCall(
        builder=builder, ports=ports, size_bytes=size_bytes, after=inputs, name="it"
    )
    results = collective(call)
    return Played(builder.build(), inputs, results)


def contributions(graph: Graph, inputs: Sequence[int]) -> list[int]:
    """For every operation, the bit set of inputs that it depends on. Only edges and gangs count: a
    place on a port orders operations but carries no data."""
    needs = [0] * graph.num_ops
    for bit, op in enumerate(inputs):
        needs[op] = 1 << bit
    src, dst = graph.edges.sources().tolist(), graph.edges.dst.tolist()
    gangs = [graph.gang_members.of(g).tolist() for g in range(graph.num_gangs)]
    before: list[int] = []
    while before != needs:
        before = list(needs)
        for a, b in zip(src, dst, strict=True):
            needs[b] |= needs[a]
        for members in gangs:
            together = 0
            for op in members:
                together |= needs[op]
            for op in members:
                needs[op] = together
    return needs


def sent_bytes(graph: Graph) -> list[int]:
    """Sent bytes by rank."""
    sends = np.isin(graph.ops.kind, SENDS)
    return (
        np.bincount(
            graph.ops.rank[sends], weights=graph.ops.size_bytes[sends], minlength=len(graph.ranks)
        )
        .astype(int)
        .tolist()
    )


def rows_of_rank(graph: Graph, rank: int) -> list[tuple[int, ...]]:
    """Operations of a rank in order, without its peers."""
    ops = graph.ops
    mine = np.flatnonzero(ops.rank == rank)
    columns = (ops.kind, ops.work_ns, ops.size_bytes, ops.priority, ops.layer, ops.step, ops.name)
    return list(zip(*(column[mine].tolist() for column in columns), strict=True))
