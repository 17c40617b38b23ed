"""Messages of each layer's weights or gradients, timed by the closed forms of single messages."""

from __future__ import annotations

from collections.abc import Callable

from augury.core.columns import F8, I8
from augury.core.enums import OpKind
from augury.costs.closed_forms import all_reduce_s
from augury.oracle.graphs.layered import LayerMessage
from augury.oracle.graphs.program import Participants
from augury.oracle.layer_costs import WEIGHT_BYTES
from augury.oracle.strategy import StrategyCase

CollectiveSeconds = Callable[..., F8]
"""Closed form of a collective: members, bytes, alpha, beta and number of messages to seconds."""


def weight_messages(
    case: StrategyCase,
    collective: CollectiveSeconds,
    *,
    name: str,
    kind: OpKind,
    num: F8,
    link: str,
    alpha: F8,
    beta: F8,
    messages: float,
    weights: float = 1.0,
    participants: Participants = Participants.ALL,
) -> dict[int, LayerMessage]:
    """Returns the message of each layer with weights, by layer. Pieces of one message follow each
    other without a gap, so that its latency is divided among them."""
    if num[0] <= 1:
        return {}
    found = {}
    for layer, share, latencies in _pieces(case, messages):
        size_bytes = WEIGHT_BYTES * float(case.work.parameters[layer]) * weights
        time_s = float(collective(num, size_bytes, alpha, beta, messages=latencies)[0])
        if share or time_s:
            found[layer] = LayerMessage(
                name=name,
                kind=kind,
                time_s=time_s,
                size_bytes=size_bytes,
                link=link,
                participants=participants,
            )
    return found


def gradient_messages(
    case: StrategyCase,
    num: F8,
    alpha_beta: tuple[F8, F8],
    *,
    name: str = "gradients",
    level: I8 | None = None,
    messages: float,
    weights: float = 1.0,
    participants: Participants = Participants.ALL,
) -> dict[int, list[LayerMessage]]:
    """Returns the all-reduce of each layer's gradients, by layer. ``level`` is the one that holds
    all devices unless stated."""
    alpha, beta = alpha_beta
    found = weight_messages(
        case,
        all_reduce_s,
        name=name,
        kind=OpKind.ALL_REDUCE,
        num=num,
        link=link_name(case, case.level if level is None else level),
        alpha=alpha,
        beta=beta,
        messages=messages,
        weights=weights,
        participants=participants,
    )
    return {layer: [message] for layer, message in found.items()}


def link_name(case: StrategyCase, level: I8) -> str:
    return f"link of {case.cluster.levels[int(level[0])].name}"


def _pieces(case: StrategyCase, messages: float) -> list[tuple[int, float, float]]:
    """Layers with weights: index, share of all weights, number of latencies. Each layer with
    filters has one latency if there are as many messages; otherwise they are divided by size."""
    work = case.work
    total = float(work.parameters.sum())
    if not total:
        return [(0, 0.0, messages)]
    weighted = set(work.weighted_places)
    each = messages == len(weighted) > 1
    return [
        (layer, share, float(layer in weighted) if each else messages * share)
        for layer, share in enumerate((work.parameters / total).tolist())
        if share
    ]
