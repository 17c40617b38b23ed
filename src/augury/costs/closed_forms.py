"""Closed-form times of collectives (alpha-beta models): scalar and vectorised.

Functions that end in ``_ns`` take one configuration and a Link and return integer nanoseconds,
rounded up: the time of the expanded algorithm on equal ranks that start together, with free
reductions. Functions that end in ``_s`` take arrays of configurations and return float seconds;
a message of m bytes takes alpha + m beta (Hockney), and ``messages`` is the number of messages
that the tensor is sent in.

``size_bytes`` is the whole tensor: the contribution of each rank to an all-reduce or a
reduce-scatter, the result of each rank after an all-gather, the bytes that each rank sends in an
all-to-all.
"""

from __future__ import annotations

from augury.core.cluster.cluster import Link
from augury.core.columns import F8
from augury.costs.collective_steps import TREE_CHUNKS


def point_to_point_s(size_bytes: F8 | float, alpha: F8, beta: F8) -> F8:
    return alpha + size_bytes * beta


def reduce_scatter_ns(size_bytes: int, num_ranks: int, link: Link) -> int:
    """Time around a ring: each chunk takes one step less than there are ranks."""
    return (num_ranks - 1) * link.transfer_ns(_up(size_bytes, num_ranks))


def reduce_scatter_s(
    num: F8, size_bytes: F8 | float, alpha: F8, beta: F8, *, messages: float = 1
) -> F8:
    return all_gather_s(num, size_bytes, alpha, beta, messages=messages)


def all_gather_ns(size_bytes: int, num_ranks: int, link: Link) -> int:
    return reduce_scatter_ns(size_bytes, num_ranks, link)


def all_gather_s(
    num: F8, size_bytes: F8 | float, alpha: F8, beta: F8, *, messages: float = 1
) -> F8:
    """Time around a ring of ``num`` ranks."""
    return (num - 1) * (messages * alpha + size_bytes * beta / num)


def all_reduce_ring_ns(size_bytes: int, num_ranks: int, link: Link) -> int:
    return reduce_scatter_ns(size_bytes, num_ranks, link) + all_gather_ns(
        size_bytes, num_ranks, link
    )


def all_reduce_s(
    num: F8, size_bytes: F8 | float, alpha: F8, beta: F8, *, messages: float = 1
) -> F8:
    """Time around a ring of ``num`` ranks."""
    return 2 * (num - 1) * (messages * alpha + size_bytes * beta / num)


def all_reduce_tree_ns(size_bytes: int, num_ranks: int, link: Link) -> int:
    """Time up and down a binary tree. Behind the first chunk, the port of an inner rank forwards
    each further chunk three times: to its parent once, to its children twice."""
    if num_ranks == 1:
        return 0
    chunk_bytes = _up(size_bytes, TREE_CHUNKS)
    depth = tree_depth(num_ranks)
    following = (TREE_CHUNKS - 1) * min(num_ranks - 1, 3) * link.send_ns(chunk_bytes)
    return 2 * depth * link.transfer_ns(chunk_bytes) + following


def all_reduce_two_level_ns(
    size_bytes: int, *, num_hosts: int, ranks_per_host: int, intra: Link, inter: Link
) -> int:
    """Time of a reduce-scatter inside hosts, an all-reduce of each shard across hosts and an
    all-gather inside hosts."""
    shard_bytes = _up(size_bytes, ranks_per_host)
    return (
        reduce_scatter_ns(size_bytes, ranks_per_host, intra)
        + all_reduce_ring_ns(shard_bytes, num_hosts, inter)
        + all_gather_ns(size_bytes, ranks_per_host, intra)
    )


def broadcast_ns(size_bytes: int, num_ranks: int, link: Link) -> int:
    """Time down a binary tree, pipelined in chunks."""
    if num_ranks == 1:
        return 0
    chunk_bytes = _up(size_bytes, TREE_CHUNKS)
    following = (TREE_CHUNKS - 1) * min(num_ranks - 1, 2) * link.send_ns(chunk_bytes)
    return tree_depth(num_ranks) * link.transfer_ns(chunk_bytes) + following


def all_to_all_ns(size_bytes: int, num_ranks: int, link: Link) -> int:
    """Time in which each rank sends to all others in turn, without waiting for arrivals."""
    if num_ranks == 1:
        return 0
    return (num_ranks - 1) * link.send_ns(_up(size_bytes, num_ranks)) + link.latency_ns


def tree_depth(num_ranks: int) -> int:
    """Number of levels below the root of a complete binary tree."""
    return num_ranks.bit_length() - 1


def _up(size_bytes: int, parts: int) -> int:
    return -(-size_bytes // parts)
