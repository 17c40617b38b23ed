"""How uncertain a prediction is, and warnings where it goes beyond what the constants know."""

from __future__ import annotations

import math
from collections.abc import Sequence

from augury.oracle.feasibility import Judged
from augury.oracle.fitting.corrections import BARE_SPREAD
from augury.oracle.fitting.held_out import SURE_Z, doublings_beyond
from augury.oracle.strategy import StrategyCase

DEVICE_SPREAD = 0.2
"""Assumed of another device or cluster than the fitted one: its efficiencies are guesses."""
LAYERS_SPREAD = 0.5
"""Assumed of compute in kinds of layers that no fitted model had, times their share: as uncertain
as the bare equations are."""
FOREIGN_LAYERS = 0.25
"""Share of compute from which on they are worth a warning."""
MUCH = 0.1
"""A kind of layer is known that had this share of a fitted model's compute."""


def own_spread(judged: Judged, index: int) -> float:
    """Standard deviation of the logarithm of a predicted time, apart from what all strategies have
    in common. Layers of an unknown kind split unlike known ones, so they are no common error."""
    case, strategy = judged.case, judged.estimate.strategy
    return math.hypot(
        case.constants.spread_of(strategy),
        case.constants.beyond_spread * _doublings(judged, index),
        LAYERS_SPREAD * foreign_share(case),
    )


def common_spread(case: StrategyCase) -> float:
    """How fast a sample's compute and the cluster's links really are."""
    is_known = _is_bare(case) or case.constants.cluster == case.cluster.name
    return 0.0 if is_known else DEVICE_SPREAD


def foreign_share(case: StrategyCase) -> float:
    """Share of compute in kinds of layers that fitted models had little of."""
    return sum(_foreign(case).values())


def _foreign(case: StrategyCase) -> dict[str, float]:
    known = case.constants.layer_shares
    if not known or case.work.is_timed:
        return {}
    return {
        kind: max(0.0, share - known.get(kind, 0.0))
        for kind, share in case.work.shares_by_kind.items()
        if known.get(kind, 0.0) < MUCH
    }


def warnings_of(judged: Sequence[Judged]) -> list[str]:
    """One for every way in which a sweep goes beyond what the constants were fitted on."""
    case = judged[0].case
    if _is_bare(case):
        return [
            "nothing was fitted: the bare equations leave out what splitting costs, and miss"
            f" measured steps by up to {math.exp(SURE_Z * BARE_SPREAD):.1f} times"
        ]
    return [
        *_of_layers(case),
        *_of_device(case),
        *_of_strategies(judged),
        *_of_scale(judged),
    ]


def _of_layers(case: StrategyCase) -> list[str]:
    share = foreign_share(case)
    if share < FOREIGN_LAYERS:
        return []
    foreign = _foreign(case)
    most = max(foreign, key=foreign.__getitem__)
    return [
        f"{100 * share:.0f} % of the compute is of a kind that the fitted models hardly had"
        f" (most of it {most}): how it splits and how fast it is are guesses;"
        " give measured times (--times), or fit constants on such a model"
    ]


def _of_device(case: StrategyCase) -> list[str]:
    constants, cluster = case.constants, case.cluster
    if constants.cluster == cluster.name:
        return []
    fitted = f"{constants.cluster} ({constants.device})" if constants.device else constants.cluster
    device = cluster.described_device.name
    speed = "" if case.work.is_timed else f", and the efficiency of {device} is a guess"
    return [f"the constants were fitted on {fitted}, not on {cluster.name}{speed}"]


def _of_strategies(judged: Sequence[Judged]) -> list[str]:
    known = judged[0].case.constants.spread
    unseen = [one.estimate.strategy for one in judged if one.estimate.strategy not in known]
    if not unseen:
        return []
    factor = math.exp(SURE_Z * judged[0].case.constants.spread_of(unseen[0]))
    return [
        f"never fitted: {', '.join(unseen)}; strategies that were left out of the fit were missed"
        f" by up to {factor:.1f} times"
    ]


def _of_scale(judged: Sequence[Judged]) -> list[str]:
    beyond: dict[float, list[str]] = {}
    for one in judged:
        if any(_doublings(one, index) for index in range(len(one.case.devices))):
            fitted = one.case.constants.max_devices[one.estimate.strategy]
            beyond.setdefault(fitted, []).append(one.estimate.strategy)
    return [
        f"{', '.join(names)}: fitted up to {fitted:.0f} devices, and less certain with every"
        " doubling beyond"
        for fitted, names in beyond.items()
    ]


def _doublings(judged: Judged, index: int) -> float:
    fitted = judged.case.constants.max_devices.get(judged.estimate.strategy, 0.0)
    return doublings_beyond(float(judged.case.devices[index]), fitted)


def _is_bare(case: StrategyCase) -> bool:
    return not case.constants.spread
