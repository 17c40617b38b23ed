"""Communications that several strategies use: gradients, and outputs of split layers."""

from __future__ import annotations

import numpy as np

from augury.core.columns import F8, I8
from augury.costs.closed_forms import all_gather_s, all_reduce_s
from augury.oracle.strategy import CostPart, LimitReason, StrategyCase, exposed_behind_backward


def gradient_exchange(
    case: StrategyCase,
    *,
    num: F8,
    size_bytes: float,
    compute_s: F8,
    messages: float = 1,
    flows: float = 1,
) -> CostPart:
    """Ring all-reduce of ``num`` devices spread over the whole job, one of ``flows`` side by
    side."""
    alpha, beta = gradient_link(case, flows=flows)
    time_s = all_reduce_s(num, size_bytes, alpha, beta, messages=messages)
    return CostPart(
        reason=LimitReason.GRADIENT,
        collective="all-reduce",
        size_bytes=np.full_like(num, size_bytes),
        group=num,
        level=case.level,
        time_s=time_s,
        exposed_s=exposed_behind_backward(case, time_s, compute_s),
    )


def gradient_link(case: StrategyCase, *, flows: float = 1) -> tuple[F8, F8]:
    """Seconds per message and per byte between devices spread over the whole job."""
    cluster, level = case.cluster, case.level
    beta = cluster.seconds_per_byte(level) * case.constants.gradient_contention
    if not case.options.is_bare and flows > 1:
        beta = beta * cluster.sharing(level, np.full_like(case.devices, flows))
    return cluster.latency_s(level), beta


def layer_exchange(
    case: StrategyCase, *, num: F8, samples: F8, contention: float, has_pieces: bool
) -> list[CostPart]:
    """All-gather of outputs and all-reduce of their gradients (or the reverse), layer by layer
    among ``num`` neighbours. With ``has_pieces``, each gathered piece has a launch overhead."""
    work = case.work
    level = case.cluster.level_of(num)
    alpha, beta = layer_link(case, level, contention)
    size_bytes = samples * work.exchanged_items * work.precision.item_bytes
    once_s = all_gather_s(num, size_bytes, alpha, beta, messages=work.num_weighted - 1)
    launch_s = pieces_s(case, num) if has_pieces else 0.0
    return [
        CostPart(
            reason=LimitReason.LAYERWISE,
            collective=collective,
            size_bytes=size_bytes,
            group=num,
            level=level,
            time_s=time_s,
            exposed_s=time_s,
        )
        for collective, time_s in (("all-gather", once_s + launch_s), ("all-reduce", 2 * once_s))
    ]


def layer_link(case: StrategyCase, level: I8, contention: float) -> tuple[F8, F8]:
    """Seconds per message and per byte between neighbours that split layers."""
    beta = case.cluster.seconds_per_byte(level)
    factor = np.where(level == 0, case.constants.node_contention, contention)
    return case.cluster.latency_s(level), beta * factor


def pieces_s(case: StrategyCase, num: F8) -> F8:
    """Launch overhead of the kernels that assemble gathered pieces."""
    return np.where(num > 1, case.constants.piece_s * num * case.work.num_weighted, 0.0)
