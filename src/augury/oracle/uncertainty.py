"""Uncertainty of predictions, and warnings where a sweep goes beyond the fitted measurements."""

from __future__ import annotations

import math
from collections.abc import Sequence

from augury.oracle.feasibility import Judged
from augury.oracle.fitting.corrections import BARE_SPREAD
from augury.oracle.fitting.held_out import Z_90, doublings_beyond
from augury.oracle.strategy import StrategyCase

DEVICE_SPREAD = 0.2
"""Spread assumed for a device or cluster other than the fitted one."""
LAYERS_SPREAD = 0.5
"""Spread assumed for compute in kinds of layers that no fitted model had, times their share; that
of the bare equations."""
FOREIGN_LAYERS = 0.25
"""Share of compute in such layers from which a warning is given."""
MIN_KNOWN_SHARE = 0.1
"""Share of a fitted model's compute from which a kind of layer counts as known."""


def own_spread(judged: Judged, index: int) -> float:
    """Standard deviation of the logarithm of a predicted time, without the part that all strategies
    have in common. Layers of an unknown kind split differently, so their error is not common."""
    case, strategy = judged.case, judged.estimate.strategy
    return math.hypot(
        case.constants.spread_of(strategy),
        case.constants.beyond_spread * _doublings(judged, index),
        LAYERS_SPREAD * foreign_share(case),
    )


def common_spread(case: StrategyCase) -> float:
    """Spread that all strategies have in common: speed of compute and of the links."""
    is_known = _is_bare(case) or case.constants.cluster == case.cluster.name
    return 0.0 if is_known else DEVICE_SPREAD


def foreign_share(case: StrategyCase) -> float:
    """Share of compute in kinds of layers that the fitted models had little of."""
    return sum(_foreign(case).values())


def _foreign(case: StrategyCase) -> dict[str, float]:
    known = case.constants.layer_shares
    if not known or case.work.is_timed:
        return {}
    return {
        kind: max(0.0, share - known.get(kind, 0.0))
        for kind, share in case.work.shares_by_kind.items()
        if known.get(kind, 0.0) < MIN_KNOWN_SHARE
    }


def warnings_of(judged: Sequence[Judged]) -> list[str]:
    """Returns one warning for each way in which a sweep goes beyond the fitted measurements."""
    case = judged[0].case
    if _is_bare(case):
        return [
            "nothing was fitted: the bare equations neglect the cost of splitting, and miss"
            f" measured steps by up to {math.exp(Z_90 * BARE_SPREAD):.1f} times"
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
        f"{100 * share:.0f} % of the compute is in kinds of layers that fitted models hardly had"
        f" (mostly {most}), so its speed and its cost when split are guesses;"
        " give measured times (--times), or fit constants to such a model"
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
    factor = math.exp(Z_90 * judged[0].case.constants.spread_of(unseen[0]))
    return [
        f"never fitted: {', '.join(unseen)}; predictions of strategies left out of the fit were off"
        f" by up to {factor:.1f} times"
    ]


def _of_scale(judged: Sequence[Judged]) -> list[str]:
    beyond: dict[float, list[str]] = {}
    for one in judged:
        if any(_doublings(one, index) for index in range(len(one.case.devices))):
            fitted = one.case.constants.max_devices[one.estimate.strategy]
            beyond.setdefault(fitted, []).append(one.estimate.strategy)
    return [
        f"{', '.join(names)}: fitted up to {fitted:.0f} devices, and less certain with each"
        " doubling beyond"
        for fitted, names in beyond.items()
    ]


def _doublings(judged: Judged, index: int) -> float:
    fitted = judged.case.constants.max_devices.get(judged.estimate.strategy, 0.0)
    return doublings_beyond(float(judged.case.devices[index]), fitted)


def _is_bare(case: StrategyCase) -> bool:
    return not case.constants.spread
