"""Messages of a step, layer by layer, with the times that the closed forms give single ones."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from augury.core.columns import F8
from augury.core.enums import OpKind
from augury.oracle.graphs.layered import LayerMessage
from augury.oracle.graphs.program import Fellows
from augury.oracle.layer_costs import WEIGHT_BYTES
from augury.oracle.strategy import StrategyCase

Seconds = Callable[..., F8]
"""Of a collective: its members, bytes, alpha, beta and number of messages."""


def of_weights(
    case: StrategyCase,
    collective: Seconds,
    *,
    name: str,
    kind: OpKind,
    num: F8,
    link: str,
    alpha: F8,
    beta: F8,
    messages: float,
    weights: float = 1.0,
    fellows: Fellows = Fellows.ALL,
) -> dict[int, LayerMessage]:
    """What every layer sends of its weights or their gradients. Pieces of one message follow each
    other without a pause, so that its latency is shared out among them."""
    if num[0] <= 1:
        return {}
    found = {}
    for place, share, latencies in _pieces(case, messages):
        size_bytes = WEIGHT_BYTES * float(case.work.parameters[place]) * weights
        time_s = float(collective(num, size_bytes, alpha, beta, messages=latencies)[0])
        if share or time_s:
            found[place] = LayerMessage(
                name=name,
                kind=kind,
                time_s=time_s,
                size_bytes=size_bytes,
                link=link,
                fellows=fellows,
            )
    return found


def _pieces(case: StrategyCase, messages: float) -> list[tuple[int, float, float]]:
    """Layers with weights: place, share of all weights, how many latencies. One for each layer
    with filters, where there are as many; else shared out by size."""
    work = case.work
    total = float(work.parameters.sum())
    if not total:
        return [(0, 0.0, messages)]
    weighted = set(work.weighted_places)
    each = messages == len(weighted) > 1
    return [
        (place, share, float(place in weighted) if each else messages * share)
        for place, share in enumerate((work.parameters / total).tolist())
        if share
    ]


def link_of(case: StrategyCase, level: np.ndarray[tuple[int], np.dtype[np.int64]]) -> str:
    return f"link of {case.cluster.levels[int(level[0])].name}"
