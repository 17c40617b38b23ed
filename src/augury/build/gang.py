"""Collectives as one operation per member, which progress together on the ranks' streams.

Ranks must take their gangs in the same order: a priority that overtakes on one rank but not yet
on another is a deadlock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from augury.build.ports import Ports
from augury.core.builder import GraphBuilder
from augury.core.kinds import OpKind
from augury.costs import network


def ring_ns(size_bytes: int, ports: Ports) -> int:
    return network.all_reduce_ring_ns(size_bytes, len(ports), ports.widest_link())


def tree_ns(size_bytes: int, ports: Ports) -> int:
    return network.all_reduce_tree_ns(size_bytes, len(ports), ports.widest_link())


def two_level_ns(size_bytes: int, ports: Ports) -> int:
    hosts = ports.by_host()
    return network.all_reduce_two_level_ns(
        size_bytes,
        num_hosts=len(hosts),
        ranks_per_host=max(map(len, hosts)),
        intra=ports.cluster.intra,
        inter=ports.cluster.inter,
    )


def reduce_scatter_ns(size_bytes: int, ports: Ports) -> int:
    return network.reduce_scatter_ns(size_bytes, len(ports), ports.widest_link())


def all_gather_ns(size_bytes: int, ports: Ports) -> int:
    return network.all_gather_ns(size_bytes, len(ports), ports.widest_link())


def all_to_all_ns(size_bytes: int, ports: Ports) -> int:
    return network.all_to_all_ns(size_bytes, len(ports), ports.widest_link())


class WorkOf(Protocol):
    def __call__(self, size_bytes: int, ports: Ports) -> int: ...


@dataclass(frozen=True)
class Gang:
    """A Collective of one kind whose work a closed form tells."""

    kind: OpKind
    work_of: WorkOf

    def __call__(
        self,
        builder: GraphBuilder,
        ports: Ports,
        *,
        size_bytes: int,
        after: Sequence[int],
        name: str,
        step: int = 0,
        priority: int = 0,
    ) -> list[int]:
        if len(ports) == 1:
            return list(after)
        gang = builder.gang()
        work_ns = self.work_of(size_bytes, ports)
        return [
            builder.op(
                name,
                kind=self.kind,
                rank=port.rank,
                resource=port.stream,
                work_ns=work_ns,
                size_bytes=size_bytes,
                after=(before,),
                priority=priority,
                gang=gang,
                step=step,
            )
            for port, before in zip(ports.members, after, strict=True)
        ]


def broadcast(
    builder: GraphBuilder,
    ports: Ports,
    *,
    size_bytes: int,
    after: Sequence[int],
    name: str,
    step: int = 0,
    priority: int = 0,
    root: int = 0,
) -> list[int]:
    """No gang: the root does not wait for those who listen, and they wait only for it."""
    if len(ports) == 1:
        return list(after)
    link = ports.widest_link()
    whole_ns = network.broadcast_ns(size_bytes, len(ports), link)
    speak = partial(
        builder.op,
        name,
        kind=OpKind.BROADCAST,
        size_bytes=size_bytes,
        priority=priority,
        step=step,
    )
    sent = speak(
        rank=ports[root].rank,
        resource=ports[root].stream,
        work_ns=whole_ns - link.latency_ns,
        after=(after[root],),
    )
    return [
        sent
        if position == root
        else speak(
            rank=port.rank,
            resource=port.stream,
            work_ns=link.latency_ns,
            after=(sent, after[position]),
        )
        for position, port in enumerate(ports.members)
    ]
