"""Closed-form times of communication: alpha-beta models, in integer nanoseconds, rounded up.

Each is the time of the expanded algorithm on equal ranks that start together, with reductions
for free; ``size_bytes`` is the whole tensor: what every rank contributes to an all-reduce or a
reduce-scatter, what every rank has after an all-gather, what every rank sends in an all-to-all.
"""

from __future__ import annotations

from augury.core.cluster import Link
from augury.costs.collective_steps import TREE_CHUNKS


def point_to_point_ns(size_bytes: int, link: Link) -> int:
    return link.transfer_ns(size_bytes)


def reduce_scatter_ns(size_bytes: int, num_ranks: int, link: Link) -> int:
    """A ring: every chunk takes one step less than there are ranks."""
    return (num_ranks - 1) * link.transfer_ns(_up(size_bytes, num_ranks))


def all_gather_ns(size_bytes: int, num_ranks: int, link: Link) -> int:
    return reduce_scatter_ns(size_bytes, num_ranks, link)


def all_reduce_ring_ns(size_bytes: int, num_ranks: int, link: Link) -> int:
    return reduce_scatter_ns(size_bytes, num_ranks, link) + all_gather_ns(
        size_bytes, num_ranks, link
    )


def all_reduce_tree_ns(size_bytes: int, num_ranks: int, link: Link) -> int:
    """Up and down a binary tree. Behind the first chunk, an inner rank's port passes every
    further one on three times: to its parent once, to its children twice."""
    if num_ranks == 1:
        return 0
    chunk_bytes = _up(size_bytes, TREE_CHUNKS)
    depth = tree_depth(num_ranks)
    behind = (TREE_CHUNKS - 1) * min(num_ranks - 1, 3) * link.send_ns(chunk_bytes)
    return 2 * depth * link.transfer_ns(chunk_bytes) + behind


def all_reduce_two_level_ns(
    size_bytes: int, *, num_hosts: int, ranks_per_host: int, intra: Link, inter: Link
) -> int:
    """Scatter inside the hosts, reduce every shard across them, gather inside."""
    shard_bytes = _up(size_bytes, ranks_per_host)
    return (
        reduce_scatter_ns(size_bytes, ranks_per_host, intra)
        + all_reduce_ring_ns(shard_bytes, num_hosts, inter)
        + all_gather_ns(size_bytes, ranks_per_host, intra)
    )


def broadcast_ns(size_bytes: int, num_ranks: int, link: Link) -> int:
    """Down a binary tree, chunk behind chunk."""
    if num_ranks == 1:
        return 0
    chunk_bytes = _up(size_bytes, TREE_CHUNKS)
    behind = (TREE_CHUNKS - 1) * min(num_ranks - 1, 2) * link.send_ns(chunk_bytes)
    return tree_depth(num_ranks) * link.transfer_ns(chunk_bytes) + behind


def all_to_all_ns(size_bytes: int, num_ranks: int, link: Link) -> int:
    """Every rank sends to every other, one after the other without waiting for arrivals."""
    if num_ranks == 1:
        return 0
    return (num_ranks - 1) * link.send_ns(_up(size_bytes, num_ranks)) + link.latency_ns


def tree_depth(num_ranks: int) -> int:
    """Levels below the root of a complete binary tree."""
    return num_ranks.bit_length() - 1


def _up(size_bytes: int, parts: int) -> int:
    return -(-size_bytes // parts)
