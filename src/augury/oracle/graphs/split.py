"""Filters, channels or tiles shared out, among all devices or inside groups."""

from __future__ import annotations

import numpy as np

from augury.core.columns import F8
from augury.core.enums import OpKind
from augury.costs.closed_forms import all_gather_s, all_reduce_s
from augury.oracle.graphs.layered import LayeredStep, LayerMessage
from augury.oracle.graphs.memory_buffers import Shares
from augury.oracle.graphs.messages import link_of, of_weights
from augury.oracle.graphs.program import Fellows
from augury.oracle.strategies.alone import Alone
from augury.oracle.strategies.exchange import gradient_link, layer_link
from augury.oracle.strategies.grouped import Grouped, between_groups, group_messages
from augury.oracle.strategies.layer_split import LayerSplit
from augury.oracle.strategies.split import Split, memory_shares, shrunk
from augury.oracle.strategies.tiles import halos_of, tiling_of
from augury.oracle.strategy import StrategyCase

ByLayer = dict[int, LayerMessage]


def alone_step(strategy: Alone, case: StrategyCase) -> LayeredStep:
    split = strategy.split
    step = _split_step(
        split,
        case,
        case.devices,
        float(case.batch[0]),
        redundancy=split.figures.redundancy,
        is_exchanged=split.has_whole_weights,
    )
    if split.has_whole_weights:
        step.gradients.update(_between(case, case.devices, messages=1))
    return step


def grouped_step(strategy: Grouped, case: StrategyCase) -> LayeredStep:
    split = strategy.split
    group, groups = np.array([float(case.group)]), between_groups(case)
    samples = float(case.batch[0] / groups[0])
    step = _split_step(
        split,
        case,
        group,
        samples,
        redundancy=split.figures.group_redundancy,
        is_exchanged=True,
    )
    messages = group_messages(split, case)
    if split.has_whole_weights:
        inside = _inside(case, group)
        between = _between(case, groups, messages=messages)
        both = (inside, between)
        step.gradients.update(
            {
                place: [one for found in both for one in found.get(place, [])]
                for place in sorted(inside.keys() | between.keys())
            }
        )
    else:
        step.gradients.update(
            _between(
                case,
                groups,
                messages=messages,
                weights=1 / case.group,
                flows=case.group,
                fellows=Fellows.ACROSS,
            )
        )
    return step


def _split_step(
    split: Split,
    case: StrategyCase,
    num: F8,
    samples: float,
    *,
    redundancy: str,
    is_exchanged: bool,
) -> LayeredStep:
    constants = case.constants
    held = {kind: float(np.max(share)) for kind, share in memory_shares(split, num).items()}
    share = constants.compute_ratio * samples * shrunk(num, getattr(constants, redundancy))
    step = LayeredStep(
        case=case,
        share=float(share[0]),
        shares=Shares(
            samples=samples,
            items=held["items"],
            weights=held["weights"],
            is_exchanged=is_exchanged,
        ),
        update_share=1.0 if split.has_whole_weights else 1 / float(num[0]),
    )
    if num[0] > 1:
        if isinstance(split, LayerSplit):
            _split_layers(split, step, num, samples)
        else:
            _cut_tiles(step, num, samples)
    return step


def _split_layers(split: LayerSplit, step: LayeredStep, num: F8, samples: float) -> None:
    """Outputs of all weighted layers but the last are gathered and their gradients summed, or the
    reverse. What is gathered is put together piece by piece, on the device and in the exchange."""
    case, work = step.case, step.case.work
    level = case.cluster.level_of(num)
    alpha, beta = layer_link(case, level, getattr(case.constants, split.contention))
    piece_s = case.constants.piece_s * float(num[0]) if split.gathers_outputs else 0.0
    for place in work.weighted_places:
        size_bytes, once_s = 0.0, 0.0
        if place != work.weighted_places[-1]:
            size_bytes = samples * float(work.output_items[place]) * work.precision.item_bytes
            once_s = float(all_gather_s(num, size_bytes, alpha, beta)[0])
        if piece_s:
            step.launch_s[place] = piece_s
        gathered = LayerMessage(
            name="gather" if once_s else "put together",
            kind=OpKind.ALL_GATHER,
            time_s=once_s + piece_s,
            size_bytes=size_bytes,
            link=link_of(case, level),
            fellows=Fellows.GROUP,
        )
        summed = LayerMessage(
            name="sum",
            kind=OpKind.ALL_REDUCE,
            time_s=2 * once_s,
            size_bytes=size_bytes,
            link=link_of(case, level),
            fellows=Fellows.GROUP,
        )
        forward, backward = (gathered, summed) if split.gathers_outputs else (summed, gathered)
        if forward.time_s:
            step.after_forward[place] = forward
        if backward.time_s:
            step.before_backward[place] = backward


def _cut_tiles(step: LayeredStep, num: F8, samples: float) -> None:
    """Borders of inputs before forward, of outputs' gradients before backward; both ways."""
    case, work = step.case, step.case.work
    level = case.cluster.level_of(num)
    alpha = float(case.cluster.latency_s(level)[0])
    beta = float(case.cluster.seconds_per_byte(level)[0]) + case.constants.staging_s_per_byte
    for place, of_inputs, of_outputs in halos_of(work, tiling_of(work, int(num[0])).cuts):
        for messages, items in (
            (step.before_forward, of_inputs),
            (step.before_backward, of_outputs),
        ):
            size_bytes = 2 * samples * items * work.precision.item_bytes
            messages[place] = LayerMessage(
                name="halo",
                kind=OpKind.ALL_TO_ALL,
                time_s=2 * alpha + size_bytes * beta,
                size_bytes=size_bytes,
                link=link_of(case, level),
                fellows=Fellows.GROUP,
            )


def _between(
    case: StrategyCase,
    num: F8,
    *,
    messages: float,
    weights: float = 1.0,
    flows: float = 1,
    fellows: Fellows = Fellows.ALL,
) -> dict[int, list[LayerMessage]]:
    alpha, beta = gradient_link(case, flows=flows)
    found = of_weights(
        case,
        all_reduce_s,
        name="gradients",
        kind=OpKind.ALL_REDUCE,
        num=num,
        link=link_of(case, case.level),
        alpha=alpha,
        beta=beta,
        messages=messages,
        weights=weights,
        fellows=fellows,
    )
    return {place: [message] for place, message in found.items()}


def _inside(case: StrategyCase, group: F8) -> dict[int, list[LayerMessage]]:
    cluster = case.cluster
    level = cluster.level_of(group)
    found = of_weights(
        case,
        all_reduce_s,
        name="gradients in the group",
        kind=OpKind.ALL_REDUCE,
        num=group,
        link=link_of(case, level),
        alpha=cluster.latency_s(level),
        beta=cluster.seconds_per_byte(level),
        messages=1,
        fellows=Fellows.GROUP,
    )
    return {place: [message] for place, message in found.items()}
