"""Closed forms of collectives for arrays of configurations, in float seconds (Hockney: a message
of m bytes takes alpha + m beta)."""

from __future__ import annotations

from augury.oracle.cluster.cluster import F8


def all_reduce_s(
    num: F8, size_bytes: F8 | float, alpha: F8, beta: F8, *, messages: float = 1
) -> F8:
    """Around a ring; ``size_bytes`` is the whole tensor, sent as so many messages."""
    return 2 * (num - 1) * (messages * alpha + size_bytes * beta / num)


def all_gather_s(
    num: F8, size_bytes: F8 | float, alpha: F8, beta: F8, *, messages: float = 1
) -> F8:
    """Around a ring; ``size_bytes`` is what everybody has in the end."""
    return (num - 1) * (messages * alpha + size_bytes * beta / num)


def reduce_scatter_s(
    num: F8, size_bytes: F8 | float, alpha: F8, beta: F8, *, messages: float = 1
) -> F8:
    return all_gather_s(num, size_bytes, alpha, beta, messages=messages)


def point_to_point_s(size_bytes: F8 | float, alpha: F8, beta: F8) -> F8:
    return alpha + size_bytes * beta
