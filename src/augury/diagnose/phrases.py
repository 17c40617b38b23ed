"""Phrases in titles of findings: ranks, hosts and steps."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from augury.core.graph.graph import Graph
from augury.diagnose.findings import hosts_of

_MOST_NAMED = 4


def ranks_words(ranks: Sequence[int]) -> str:
    """``rank 3``, ``ranks 1 and 2``, ``12 ranks``."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    if len(ranks) > _MOST_NAMED:
        return f"{len(ranks)} ranks"
    *first, last = map(str, ranks)
    return f"ranks {', '.join(first)} and {last}"


def ranks_and_hosts(graph: Graph, ranks: Sequence[int]) -> str:
    """Names the host if the ranks are all of its ranks, and others exist."""
    hosts = hosts_of(graph, ranks)
    numbers = graph.ranks.host[: graph.num_ranks]
    own = np.isin(np.arange(graph.num_ranks), ranks)
    if len(hosts) == 1 and len(set(numbers.tolist())) > 1:
        is_whole = bool((own == (numbers == numbers[ranks[0]])).all())
        if is_whole:
            return f"host {hosts[0]} ({ranks_words(ranks)})"
    return ranks_words(ranks)
