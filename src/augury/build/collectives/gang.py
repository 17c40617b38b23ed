"""Collectives as one operation per member, which progress together on the ranks' streams.

Ranks must start their gangs in the same order: a priority that reorders them on one rank but not
on another causes a deadlock.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from augury.build.collectives.ports import Ports
from augury.build.collectives.scheme import CollectiveCall
from augury.core.cluster.cluster import Link
from augury.core.enums import OpKind
from augury.costs import closed_forms

WorkOf = Callable[[int, Ports], int]
"""Function from the bytes and the members to nanoseconds."""


@dataclass(frozen=True)
class OverWidestLink:
    """Closed form of bytes, members and one link, applied to the link between the farthest
    members."""

    closed_form: Callable[[int, int, Link], int]

    def __call__(self, size_bytes: int, ports: Ports) -> int:
        return self.closed_form(size_bytes, len(ports), ports.widest_link())


def two_level_ns(size_bytes: int, ports: Ports) -> int:
    hosts = ports.by_host()
    return closed_forms.all_reduce_two_level_ns(
        size_bytes,
        num_hosts=len(hosts),
        ranks_per_host=max(map(len, hosts)),
        intra=ports.cluster.levels[0],
        inter=ports.widest_link(),
    )


@dataclass(frozen=True)
class Gang:
    """Collective of one kind, with the work of a closed form."""

    kind: OpKind
    work_of: WorkOf

    def __call__(self, call: CollectiveCall) -> list[int]:
        if len(call.ports) == 1:
            return list(call.after)
        gang = call.builder.gang()
        work_ns = self.work_of(call.size_bytes, call.ports)
        return [
            call.op(
                self.kind,
                rank=port.rank,
                resource=port.stream,
                work_ns=work_ns,
                after=(before,),
                gang=gang,
            )
            for port, before in zip(call.ports.members, call.after, strict=True)
        ]


def broadcast(call: CollectiveCall, *, root: int = 0) -> list[int]:
    """Adds a broadcast without a gang: the root does not wait for the receivers, and each receiver
    waits only for the root."""
    ports, after = call.ports, call.after
    if len(ports) == 1:
        return list(after)
    link = ports.widest_link()
    whole_ns = closed_forms.broadcast_ns(call.size_bytes, len(ports), link)
    sent = call.op(
        OpKind.BROADCAST,
        rank=ports[root].rank,
        resource=ports[root].stream,
        work_ns=whole_ns - link.latency_ns,
        after=(after[root],),
    )
    return [
        sent
        if position == root
        else call.op(
            OpKind.BROADCAST,
            rank=port.rank,
            resource=port.stream,
            work_ns=link.latency_ns,
            after=(sent, after[position]),
        )
        for position, port in enumerate(ports.members)
    ]
