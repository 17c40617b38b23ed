"""Closed-form times of collectives: alpha-beta models in integer nanoseconds, rounded up.

Each is the time of the expanded algorithm on equal ranks that start together; reductions take no
time. ``size_bytes`` is the size of the whole tensor: the input of each rank of an all-reduce or a
reduce-scatter, the output of each rank of an all-gather, the data sent by each rank of an
all-to-all.
"""

from __future__ import annotations

from augury.core.cluster import Link
from augury.costs.collective_steps import TREE_CHUNKS


def point_to_point_ns(size_bytes: int, link: Link) -> int:
    return link.transfer_ns(size_bytes)


def reduce_scatter_ns(size_bytes: int, num_ranks: int, link: Link) -> int:
    """Time of a ring, in which every chunk takes num_ranks - 1 steps."""
    return (num_ranks - 1) * link.transfer_ns(_up(size_bytes, num_ranks))


def all_gather_ns(size_bytes: int, num_ranks: int, link: Link) -> int:
    return reduce_scatter_ns(size_bytes, num_ranks, link)


def all_reduce_ring_ns(size_bytes: int, num_ranks: int, link: Link) -> int:
    return reduce_scatter_ns(size_bytes, num_ranks, link) + all_gather_ns(
        size_bytes, num_ranks, link
    )


def all_reduce_tree_ns(size_bytes: int, num_ranks: int, link: Link) -> int:
    """Time of a binary tree, up and down. After the first chunk, the port of an inner rank sends
    every further chunk three times: once to its parent and twice to its children."""
    if num_ranks == 1:
        return 0
    chunk_bytes = _up(size_bytes, TREE_CHUNKS)
    depth = tree_depth(num_ranks)
    following = (TREE_CHUNKS - 1) * min(num_ranks - 1, 3) * link.send_ns(chunk_bytes)
    return 2 * depth * link.transfer_ns(chunk_bytes) + following


def all_reduce_two_level_ns(
    size_bytes: int, *, num_hosts: int, ranks_per_host: int, intra: Link, inter: Link
) -> int:
    """Time of reduce-scatter inside hosts, all-reduce of shards across hosts, all-gather inside."""
    shard_bytes = _up(size_bytes, ranks_per_host)
    return (
        reduce_scatter_ns(size_bytes, ranks_per_host, intra)
        + all_reduce_ring_ns(shard_bytes, num_hosts, inter)
        + all_gather_ns(size_bytes, ranks_per_host, intra)
    )


def broadcast_ns(size_bytes: int, num_ranks: int, link: Link) -> int:
    """Time of chunks that follow each other down a binary tree."""
    if num_ranks == 1:
        return 0
    chunk_bytes = _up(size_bytes, TREE_CHUNKS)
    following = (TREE_CHUNKS - 1) * min(num_ranks - 1, 2) * link.send_ns(chunk_bytes)
    return tree_depth(num_ranks) * link.transfer_ns(chunk_bytes) + following


def all_to_all_ns(size_bytes: int, num_ranks: int, link: Link) -> int:
    """Time in which every rank sends to all others, one after the other without waiting."""
    if num_ranks == 1:
        return 0
    return (num_ranks - 1) * link.send_ns(_up(size_bytes, num_ranks)) + link.latency_ns


def tree_depth(num_ranks: int) -> int:
    """Returns the number of levels below the root of a complete binary tree."""
    return num_ranks.bit_length() - 1


def _up(size_bytes: int, parts: int) -> int:
    return -(-size_bytes // parts)
