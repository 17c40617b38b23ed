"""All-reduce in two levels: the fast links inside hosts first, the slow ones with less data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from augury.build import ring, tree
from augury.build.chunks import even_chunks
from augury.build.collective import Collective
from augury.build.ports import Ports
from augury.core.builder import GraphBuilder


def all_reduce(
    builder: GraphBuilder,
    ports: Ports,
    *,
    size_bytes: int,
    after: Sequence[int],
    name: str,
    step: int = 0,
    priority: int = 0,
    across: Collective = ring.all_reduce,
) -> list[int]:
    """Every local rank reduces its shard with its like on the other hosts; where hosts have
    different numbers of members, one leader per host does it for all."""
    hosts = ports.by_host()
    by_shard = len({len(positions) for positions in hosts}) == 1
    plan = _by_shard if by_shard else _by_leader
    call = _Call(
        builder=builder,
        ports=ports,
        size_bytes=size_bytes,
        name=name,
        step=step,
        priority=priority,
    )
    return plan(call, hosts, after, across)


@dataclass(frozen=True, kw_only=True)
class _Call:
    """One all-reduce, of which parts of the group take their turns."""

    builder: GraphBuilder
    ports: Ports
    size_bytes: int
    name: str
    step: int
    priority: int

    def among(
        self,
        groups: Sequence[Sequence[int]],
        have: Sequence[int],
        collective: Collective,
        sizes_bytes: Sequence[int],
        stage: str,
    ) -> list[int]:
        """Each group runs ``collective`` by itself; returns what all members have then."""
        then = list(have)
        for positions, size_bytes in zip(groups, sizes_bytes, strict=True):
            results = collective(
                self.builder,
                self.ports.group(positions),
                size_bytes=size_bytes,
                after=[have[i] for i in positions],
                name=f"{self.name}/{stage}",
                step=self.step,
                priority=self.priority,
            )
            for position, result in zip(positions, results, strict=True):
                then[position] = result
        return then


def _by_shard(
    call: _Call, hosts: Sequence[Sequence[int]], after: Sequence[int], across: Collective
) -> list[int]:
    whole = [call.size_bytes] * len(hosts)
    shards = even_chunks(call.size_bytes, len(hosts[0]))
    peers = list(zip(*hosts, strict=True))
    have = call.among(hosts, after, ring.reduce_scatter, whole, "inside")
    have = call.among(peers, have, across, shards, "across")
    return call.among(hosts, have, ring.all_gather, whole, "inside")


def _by_leader(
    call: _Call, hosts: Sequence[Sequence[int]], after: Sequence[int], across: Collective
) -> list[int]:
    whole = [call.size_bytes] * len(hosts)
    leaders = [[positions[0] for positions in hosts]]
    have = call.among(hosts, after, tree.reduce, whole, "inside")
    have = call.among(leaders, have, across, whole[:1], "across")
    return call.among(hosts, have, tree.broadcast, whole, "inside")
