"""Network ports of ranks, as resources of a graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from augury.core.cluster.cluster import Cluster, Link
from augury.core.enums import ResourceKind
from augury.core.graph.builder import GraphBuilder
from augury.core.units import NS_PER_S


class PortKind(StrEnum):
    """Way in which the messages of a port share it."""

    FIFO = "fifo"
    """One message at a time, by priority, as with a queue at the sender."""
    FAIR = "fair"
    """All messages at once, each at its share of the rate, as with TCP flows."""


@dataclass(frozen=True, kw_only=True)
class Port:
    """Port of one rank; sending and receiving are separate resources: links are full duplex."""

    rank: int
    host: int
    sends_on: int
    receives_on: int
    stream: int
    """Resource on which collectives run that are one operation per rank."""


@dataclass(frozen=True, kw_only=True)
class Ports:
    """Ports of the members of a communication, in the order of their group."""

    cluster: Cluster
    kind: PortKind
    members: tuple[Port, ...]
    reduce_bytes_per_s: int = 0
    """Rate at which a receiver reduces arriving data; 0: reductions take no time."""

    def __len__(self) -> int:
        return len(self.members)

    def __getitem__(self, position: int) -> Port:
        return self.members[position]

    def group(self, positions: Sequence[int]) -> Ports:
        return replace(self, members=tuple(self.members[i] for i in positions))

    def link(self, a: Port, b: Port) -> Link:
        return self.cluster.link_of_hosts(a.host, b.host)

    def by_host(self) -> list[list[int]]:
        """Returns the positions on each host, hosts in the order of their first member."""
        hosts: dict[int, list[int]] = {}
        for position, port in enumerate(self.members):
            hosts.setdefault(port.host, []).append(position)
        return list(hosts.values())

    def widest_link(self) -> Link:
        """Link between the members that are farthest apart."""
        hosts = [port.host for port in self.members]
        return self.cluster.link_of_hosts(min(hosts), max(hosts))

    def reduce_ns(self, size_bytes: int) -> int:
        if not self.reduce_bytes_per_s:
            return 0
        return -(-size_bytes * NS_PER_S // self.reduce_bytes_per_s)


def open_ports(
    builder: GraphBuilder,
    cluster: Cluster,
    ranks: Sequence[int],
    *,
    kind: PortKind = PortKind.FIFO,
    hosts: Sequence[int] | None = None,
    reduce_bytes_per_s: int = 0,
) -> Ports:
    """Makes the ports of ``ranks``, which are on ``hosts`` or where the cluster places them."""
    where = [cluster.host_of(rank) for rank in ranks] if hosts is None else hosts
    members = tuple(
        _open(builder, rank, host, kind) for rank, host in zip(ranks, where, strict=True)
    )
    return Ports(cluster=cluster, kind=kind, members=members, reduce_bytes_per_s=reduce_bytes_per_s)


def _open(builder: GraphBuilder, rank: int, host: int, kind: PortKind) -> Port:
    one_way = builder.resource if kind is PortKind.FIFO else builder.shared_resource
    return Port(
        rank=rank,
        host=host,
        sends_on=one_way("out", rank=rank, kind=ResourceKind.LINK_OUT),
        receives_on=one_way("in", rank=rank, kind=ResourceKind.LINK_IN),
        stream=builder.resource("communication", rank=rank, kind=ResourceKind.COMMUNICATION),
    )
