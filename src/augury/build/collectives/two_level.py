"""All-reduce in two levels: inside hosts, then across hosts with less data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from augury.build.collectives import ring, tree
from augury.build.collectives.chunks import even_chunks
from augury.build.collectives.scheme import Collective, CollectiveCall


def all_reduce(call: CollectiveCall, *, across: Collective = ring.all_reduce) -> list[int]:
    """Each local rank reduces its shard with its peers on the other hosts; where hosts have
    different numbers of members, one leader per host reduces all data."""
    hosts = call.ports.by_host()
    peers: list[Sequence[int]]
    reduce: Collective
    spread: Collective
    if len({len(positions) for positions in hosts}) == 1:
        reduce, spread = ring.reduce_scatter, ring.all_gather
        peers = list(zip(*hosts, strict=True))
        shards = even_chunks(call.size_bytes, len(hosts[0]))
    else:
        reduce, spread = tree.reduce, tree.broadcast
        peers = [[positions[0] for positions in hosts]]
        shards = [call.size_bytes]
    whole = [call.size_bytes] * len(hosts)
    have = _in_groups(call.stage("inside"), hosts, whole, reduce)
    have = _in_groups(replace(call.stage("across"), after=have), peers, shards, across)
    return _in_groups(replace(call.stage("inside"), after=have), hosts, whole, spread)


def _in_groups(
    call: CollectiveCall,
    groups: Sequence[Sequence[int]],
    sizes_bytes: Sequence[int],
    collective: Collective,
) -> list[int]:
    """Runs ``collective`` in each group; returns the last operation of each member."""
    have = list(call.after)
    for positions, size_bytes in zip(groups, sizes_bytes, strict=True):
        results = collective(call.among(positions, size_bytes=size_bytes))
        for position, result in zip(positions, results, strict=True):
            have[position] = result
    return have
