"""Communications that several strategies share."""

from __future__ import annotations

import numpy as np

from augury.oracle.cluster import F8
from augury.oracle.network import all_reduce_s
from augury.oracle.strategy import Case, Part, Reason, hidden_behind_backward


def gradient_exchange(
    case: Case,
    *,
    num: F8,
    size_bytes: float,
    compute_s: F8,
    messages: float = 1,
    flows: float = 1,
) -> Part:
    """A ring of ``num`` devices spread over all, one of ``flows`` side by side."""
    machine = case.machine
    level = case.level
    beta = machine.seconds_per_byte(level) * case.constants.gradient_contention
    if not case.options.is_bare and flows > 1:
        beta = beta * machine.sharing(level, np.full_like(num, flows))
    time_s = all_reduce_s(num, size_bytes, machine.latency_s(level), beta, messages=messages)
    return Part(
        reason=Reason.GRADIENT,
        collective="all-reduce",
        size_bytes=np.full_like(num, size_bytes),
        group=num,
        level=level,
        time_s=time_s,
        exposed_s=hidden_behind_backward(case, time_s, compute_s),
    )


def layer_exchange(
    case: Case, *, num: F8, samples: F8, contention: float, pieces: bool
) -> list[Part]:
    """Outputs gathered and gradients summed (or the reverse), layer by layer among ``num``
    neighbours. With ``pieces``, whatever is gathered is also launched piece by piece."""
    work, machine, constants = case.work, case.machine, case.constants
    level = machine.level_of(num)
    alpha, beta = machine.latency_s(level), machine.seconds_per_byte(level)
    beta = beta * np.where(level == 0, constants.node_contention, contention)
    size_bytes = samples * work.exchanged_items * work.precision.item_bytes
    num_layers = work.num_weighted - 1
    once_s = (num - 1) * (num_layers * alpha + size_bytes * beta / num)
    launch_s = pieces_s(case, num) if pieces else 0.0
    return [
        Part(
            reason=Reason.LAYERWISE,
            collective=collective,
            size_bytes=size_bytes,
            group=num,
            level=level,
            time_s=time_s,
            exposed_s=time_s,
        )
        for collective, time_s in (("all-gather", once_s + launch_s), ("all-reduce", 2 * once_s))
    ]


def pieces_s(case: Case, num: F8) -> F8:
    """Host's time to launch what puts gathered pieces together."""
    return np.where(num > 1, case.constants.piece_s * num * case.work.num_weighted, 0.0)
