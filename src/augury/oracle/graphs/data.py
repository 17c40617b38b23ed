"""Data parallelism and ZeRO, layer by layer."""

from __future__ import annotations

from augury.core.enums import OpKind
from augury.costs.closed_forms import all_gather_s, all_reduce_s, reduce_scatter_s
from augury.oracle.graphs.layered import LayeredStep
from augury.oracle.graphs.memory_buffers import Shares
from augury.oracle.graphs.messages import link_of, of_weights
from augury.oracle.strategies.exchange import gradient_link
from augury.oracle.strategy import StrategyCase


def data_step(case: StrategyCase) -> LayeredStep:
    alpha, beta = gradient_link(case)
    summed = of_weights(
        case,
        all_reduce_s,
        name="gradients",
        kind=OpKind.ALL_REDUCE,
        num=case.devices,
        link=link_of(case, case.level),
        alpha=alpha,
        beta=beta,
        messages=1,
    )
    return LayeredStep(
        case=case,
        share=_share(case),
        shares=_shares(case),
        gradients={place: [message] for place, message in summed.items()},
    )


def zero_step(case: StrategyCase, stage: int) -> LayeredStep:
    """Parameters are gathered behind the update, or, where nobody keeps them, before each use."""
    alpha, beta = gradient_link(case)
    messages = case.work.num_weighted if stage == 3 else 1
    link = link_of(case, case.level)
    scattered = of_weights(
        case,
        reduce_scatter_s,
        name="gradients",
        kind=OpKind.REDUCE_SCATTER,
        num=case.devices,
        link=link,
        alpha=alpha,
        beta=beta,
        messages=messages,
    )
    gathered = of_weights(
        case,
        all_gather_s,
        name="parameters",
        kind=OpKind.ALL_GATHER,
        num=case.devices,
        link=link,
        alpha=alpha,
        beta=beta,
        messages=messages,
    )
    return LayeredStep(
        case=case,
        share=_share(case),
        shares=_shares(case, zero=stage),
        update_share=1 / float(case.devices[0]),
        gradients={place: [message] for place, message in scattered.items()},
        parameters=gathered if stage == 3 else {},
        after_update={} if stage == 3 else gathered,
    )


def _share(case: StrategyCase) -> float:
    return case.constants.compute_ratio * float(case.batch[0] / case.devices[0])


def _shares(case: StrategyCase, *, zero: int = 0) -> Shares:
    devices = float(case.devices[0])
    return Shares(
        samples=float(case.batch[0]) / devices, is_exchanged=True, zero=zero, devices=devices
    )
